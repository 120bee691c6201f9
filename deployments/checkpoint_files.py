"""Files of a checkpoint, by the name that the catalog gives it.

`bundled/NAME` ships with the project, the path of an existing folder is used as it is, and everything else is a
repository on the model hub (`owner/name`), fetched into its local cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from deployments.contract.checkpoint_layout import ANY_WEIGHTS, INDEXES, WeightsChoice, load_index
from deployments.contract.hub_files import CheckpointKind, HubFiles, find_hub_files, path_in_repository
from deployments.contract.model import BUNDLED, local_path

_SAMPLES: Final = 64
"""Samples of a weights file that its fingerprint covers, ..."""
_SAMPLE: Final = 4096
"""... and the bytes of each."""


class CheckpointError(Exception):
    """A checkpoint can't be found, read or run. The text says what to do."""


def local_folder(checkpoint: str) -> Path | None:
    """Returns the folder of a checkpoint on this machine; None for one on the model hub.

    Raises CheckpointError for an unknown bundled one.
    """
    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        names = ", ".join(f"bundled/{path.name}" for path in sorted(BUNDLED.iterdir()))
        raise CheckpointError(f"no {checkpoint}; there are: {names}")
    return folder


def read_index(folder: Path) -> dict[str, Any]:
    """Returns the index of the pipeline in `folder`. Raises CheckpointError without one."""
    index = load_index(folder)
    if index is None:
        raise CheckpointError(f"{folder} is no checkpoint: it has neither {INDEXES[0]} nor {INDEXES[1]}, in JSON")
    return index


def pipeline_folder(
    checkpoint: str, revision: str | None = None, weights: WeightsChoice = ANY_WEIGHTS
) -> tuple[Path, bool]:
    """Returns the folder of a pipeline, and whether it is a local one, for which nothing may be fetched. Raises
    CheckpointError.

    `revision` is a branch, tag or commit of a hub repository, from which the files of `weights` are fetched.
    """
    folder = local_folder(checkpoint)
    if folder is not None:
        return folder, True
    return _fetch(find_hub_files(CheckpointKind.PIPELINE, checkpoint, revision, weights), checkpoint), False


def configs_folder(checkpoint: str) -> Path:
    """Returns the folder of a pipeline whose weights may be missing. Raises CheckpointError."""
    return local_folder(checkpoint) or _fetch(find_hub_files(CheckpointKind.CONFIGS, checkpoint), checkpoint)


def configuration_folder(checkpoint: str, revision: str | None = None) -> Path:
    """Returns a folder with the configuration of a pipeline. Raises CheckpointError."""
    return local_folder(checkpoint) or _fetch(
        find_hub_files(CheckpointKind.CONFIGURATION, checkpoint, revision), checkpoint
    )


def pretrained_folder(checkpoint: str, revision: str | None = None) -> Path:
    """Returns the folder of a transformers model with its preprocessing. Raises CheckpointError."""
    return local_folder(checkpoint) or _fetch(
        find_hub_files(CheckpointKind.PRETRAINED, checkpoint, revision), checkpoint
    )


def network_file(checkpoint: str, revision: str | None = None) -> Path:
    """Returns the file of a network: one here, or `owner/name/path/to/file` on the hub. Raises CheckpointError."""
    if Path(checkpoint).is_file():
        return Path(checkpoint)
    files = find_hub_files(CheckpointKind.NETWORK, checkpoint, revision)
    if files is None:
        raise CheckpointError(
            f"{checkpoint or 'an empty name'} is neither a file here nor owner/name/path/to/file on the model hub"
        )
    file = _fetch(files, checkpoint) / path_in_repository(files, checkpoint)
    if not file.is_file():
        raise CheckpointError(
            f"{files.repository} on the model hub has no file {path_in_repository(files, checkpoint)}"
        )
    return file


def fingerprint(folder: Path, parts: Iterable[str]) -> str:
    """Returns hexadecimal digits that identify the weights of these components of the checkpoint in `folder`.

    Covers the names, shapes and types of all tensors, and samples of the weights: hashing gigabytes would take longer
    than loading them, and two trainings have no sample in common.
    """
    digest = hashlib.sha256()
    for part in sorted(parts):
        for file in sorted((folder / part).glob("*.safetensors")):
            size = file.stat().st_size
            digest.update(f"{part}/{file.name} {size}\n".encode())
            with file.open("rb") as weights:
                digest.update(weights.read(int.from_bytes(weights.read(8), "little")))  # the header
                for piece in range(_SAMPLES):
                    weights.seek(piece * max(0, size - _SAMPLE) // (_SAMPLES - 1))
                    digest.update(weights.read(_SAMPLE))
    return digest.hexdigest()


def _fetch(files: HubFiles | None, checkpoint: str) -> Path:
    try:
        if files is not None:
            return files.fetch()
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(f"{checkpoint} is no folder here, and the model hub did not give it: {error}") from error
    raise CheckpointError(
        f"{checkpoint} is no folder here, no .safetensors file, and no name of a repository on the model hub"
    )
