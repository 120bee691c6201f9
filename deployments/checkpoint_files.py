"""Where the files of a checkpoint lie, by the name that a catalog gives it.

Names: `bundled/NAME` ships with the project, a path of an existing folder is used as it is, and everything else is a
repository on the model hub (`owner/name`), fetched into its local cache.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from deployments.contract.checkpoint import BUNDLED, place_of

_INDEXES: Final = ("modular_model_index.json", "model_index.json")
_SAMPLES: Final = 64
_SAMPLE: Final = 4096
"""Pieces of a file of weights that are looked at, and their bytes."""
_PIPELINE_FILES: Final = ("*.json", "*/*")
"""Of a hub repository: the index and the components' folders, not the same weights once more in a single file."""


class CheckpointError(Exception):
    """A checkpoint can't be found, read or run. Its text says what to do about it."""


def local_folder(checkpoint: str) -> Path | None:
    """The folder of a checkpoint that lies on this machine, None for one on the model hub.

    Raises CheckpointError for a bundled one that there is not.
    """
    folder = place_of(checkpoint)
    if folder is not None and not folder.is_dir():
        names = ", ".join(f"bundled/{path.name}" for path in sorted(BUNDLED.iterdir()))
        raise CheckpointError(f"no {checkpoint}; there are: {names}")
    return folder


def index_of(folder: Path) -> dict[str, Any]:
    """What the index of the pipeline in `folder` says. Raises CheckpointError when there is none."""
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    if index is None:
        raise CheckpointError(f"{folder} is no checkpoint: it has neither {_INDEXES[0]} nor {_INDEXES[1]}")
    return json.loads(index.read_text())


def pipeline_folder(checkpoint: str, revision: str | None = None) -> tuple[Path, bool]:
    """The folder of a pipeline, and whether everything it needs must be inside. Raises CheckpointError.

    `revision` is a branch, tag or commit of a hub repository.
    """
    folder = local_folder(checkpoint)
    if folder is not None:
        return folder, True
    try:
        return Path(snapshot_download(checkpoint, revision=revision, allow_patterns=list(_PIPELINE_FILES))), False
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(f"{checkpoint} is no folder here, and the model hub did not give it: {error}") from error


def fingerprint(folder: Path, parts: Iterable[str]) -> str:
    """Of the weights of those components of the checkpoint in `folder`, as hexadecimal digits: of the names, shapes and
    types of all tensors, and of pieces from all over them. Reading gigabytes to the last one would take longer than
    loading them, and two trainings have no piece in common.
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


def single_file(checkpoint: str, name: str, revision: str | None = None) -> Path:
    """One file of a checkpoint, `name` being its path inside; from the hub, nothing else is fetched.

    Raises CheckpointError.
    """
    folder = local_folder(checkpoint)
    if folder is not None:
        return folder / name
    try:
        return Path(hf_hub_download(checkpoint, name, revision=revision))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(f"{checkpoint} is no folder here, and the model hub did not give it: {error}") from error
