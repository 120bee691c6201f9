"""Files of a hub repository that a checkpoint needs, for replicas that load them and for fetching them beforehand.

The kind of a checkpoint decides which files of its repository are read. Fetched files are in the hub's cache on this
machine (HF_HOME), and are not fetched again.
"""

from __future__ import annotations

import glob
import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from huggingface_hub import get_cached_repo_tree, snapshot_download, try_to_load_from_cache
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    HFValidationError,
    LocalEntryNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import filter_repo_objects

from deployments.contract.checkpoint_layout import (
    ANY_WEIGHTS,
    INDEXES,
    SAFETENSORS,
    WeightsChoice,
    choose_files,
    list_files,
    load_index,
)
from deployments.contract.model import local_path

CONFIGURATION_FILES: Final = ("model_index.json", "modular_model_index.json", "*/config.json")
"""Files of a pipeline that the check of an uploaded adapter reads."""

_NESTED: Final = "*/*"
_PIPELINE: Final = ("*.json", _NESTED)
"""The index and the components' folders, without the same weights once more in a single file."""
_CONFIGS: Final = ("*.json", "*.txt", "*.model", "*.jinja")
_PRETRAINED: Final = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")
_PICKLED: Final = ("*.bin",)
"""Weights of old repositories. Patterns also match names in folders."""
_STALE_S: Final = 24 * 3600.0
"""Seconds without a write after which an incomplete file is abandoned."""


class CheckpointKind(StrEnum):
    PIPELINE = "pipeline"
    """A diffusers pipeline: an index, and a folder for each component."""
    PRETRAINED = "model"
    """A transformers model with its preprocessing, in the top folder of the repository."""
    CONFIGS = "configs"
    """A pipeline without weights, for weights in one file."""
    NETWORK = "network"
    """One file, `owner/name/path/to/file`, and the weights beside it."""
    CONFIGURATION = "configuration"
    """The files of a pipeline that the check of uploads reads."""
    LIST = "list"
    """A file that is never on the hub."""


@dataclass(frozen=True, slots=True)
class HubFiles:
    """Files of a repository that match `patterns` and not `ignore_patterns`, at a branch, tag or commit (None: main).

    A repository without safetensors in its top folder adds the files of `pickle_patterns`. With `weights`, only the
    files of a pipeline that are loaded remain.
    """

    repository: str
    revision: str | None
    patterns: tuple[str, ...]
    ignore_patterns: tuple[str, ...] = ()
    pickle_patterns: tuple[str, ...] = ()
    weights: WeightsChoice | None = None

    def fetch(self) -> Path:
        """Returns the folder with the files, and fetches missing ones.

        Looks up a branch or tag again if the hub answers. Raises the errors of `snapshot_download`.
        """
        return self._folder(local_files_only=False)

    def cached_folder(self) -> Path | None:
        """Returns the folder with the files if all are on this machine; never asks the hub."""
        try:
            folder = self._folder(local_files_only=True)
        except (LocalEntryNotFoundError, HFValidationError):
            return None
        return folder if any(self._matching(list_files(folder), folder)) else None

    def size(self) -> int | None:
        """Returns the bytes of all files, here or not; None before the hub has listed the repository."""
        tree = self._tree(self.revision)
        if tree is None:
            return None
        cached = (try_to_load_from_cache(self.repository, name, revision=self.revision) for name in INDEXES)
        folder = next((Path(file).parent for file in cached if isinstance(file, str)), None)
        return sum(tree[name] for name in self._matching(tree, folder))

    def clear(self) -> None:
        """Deletes incomplete files of the repository that a killed process left: no download resumes them."""
        blobs = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=self.repository, repo_type="model") / "blobs"
        for file in blobs.glob("*.incomplete"):
            with suppress(FileNotFoundError):  # completed meanwhile
                if time.time() - file.stat().st_mtime > _STALE_S:
                    file.unlink()

    def _folder(self, local_files_only: bool) -> Path:
        if self.weights is not None:
            folder = self._snapshot(INDEXES, self.revision, local_files_only)
            # By commit, in case the branch moves meanwhile.
            tree = self._tree(folder.name)
            names = self._matching(list_files(folder) if tree is None else tree, folder)
            return self._snapshot([glob.escape(name) for name in names], folder.name, local_files_only)
        folder = self._snapshot(self.patterns, self.revision, local_files_only)
        if self.pickle_patterns and not any(folder.glob(f"*{SAFETENSORS}")):
            return self._snapshot((*self.patterns, *self.pickle_patterns), self.revision, local_files_only)
        return folder

    def _snapshot(self, patterns: Sequence[str], revision: str | None, local_files_only: bool) -> Path:
        return Path(
            snapshot_download(
                self.repository,
                revision=revision,
                allow_patterns=list(patterns),
                ignore_patterns=list(self.ignore_patterns),
                local_files_only=local_files_only,
            )
        )

    def _tree(self, revision: str | None) -> dict[str, int] | None:
        """Returns the bytes of each file of the repository; None before the hub has listed it."""
        try:
            return {each.path: each.size for each in get_cached_repo_tree(self.repository, revision=revision)}
        except (CachedRepoTreeNotFoundError, HFValidationError):
            return None

    def _matching(self, names: Collection[str], folder: Path | None) -> list[str]:
        """Returns the names that belong to these files. `folder` has the pipeline's index."""
        patterns = list(self.patterns)
        if self.pickle_patterns and not any(name.endswith(SAFETENSORS) and "/" not in name for name in names):
            patterns += self.pickle_patterns
        matching = list(filter_repo_objects(names, allow_patterns=patterns, ignore_patterns=list(self.ignore_patterns)))
        return matching if self.weights is None else choose_files(matching, folder and load_index(folder), self.weights)


def find_hub_files(
    kind: CheckpointKind, checkpoint: str, revision: str | None = None, weights: WeightsChoice = ANY_WEIGHTS
) -> HubFiles | None:
    """Returns None for a checkpoint on this machine, or one that can't be on the hub."""
    if kind is CheckpointKind.NETWORK:
        return _network(checkpoint, revision)
    is_local = local_path(checkpoint) or Path(checkpoint).is_file() or checkpoint.startswith(("/", "."))
    if kind is CheckpointKind.LIST or is_local:
        return None
    match kind:
        case CheckpointKind.PIPELINE:
            return HubFiles(checkpoint, revision, _PIPELINE, weights=weights)
        case CheckpointKind.CONFIGS:
            return HubFiles(checkpoint, revision, _CONFIGS)
        case CheckpointKind.CONFIGURATION:
            return HubFiles(checkpoint, revision, CONFIGURATION_FILES)
        case CheckpointKind.PRETRAINED:
            return HubFiles(checkpoint, revision, _PRETRAINED, ignore_patterns=(_NESTED,), pickle_patterns=_PICKLED)


def local_checkpoint(kind: CheckpointKind, checkpoint: str) -> Path:
    """Returns the local path of a checkpoint without files on the hub."""
    is_file = kind in (CheckpointKind.NETWORK, CheckpointKind.LIST)
    return Path(checkpoint) if is_file else local_path(checkpoint) or Path(checkpoint)


def path_in_repository(files: HubFiles, checkpoint: str) -> str:
    """Returns the path of a network's file in its repository."""
    return checkpoint.removeprefix(f"{files.repository}/")


def linked_repositories(pipeline: Path) -> Iterator[HubFiles]:
    """Yields the files that the index of a fetched pipeline takes from other repositories. Raises ValueError for an
    index that is not JSON."""
    index = pipeline / INDEXES[0]
    if not index.is_file():
        return
    for entry in json.loads(index.read_text()).values():
        match entry:
            case [_, _, {"pretrained_model_name_or_path": str(repository), **options}]:
                subfolder, revision = options.get("subfolder") or "", options.get("revision")
                if subfolder and not (pipeline / subfolder).is_dir():
                    yield HubFiles(repository, revision, (f"{subfolder}/*",))
                elif not subfolder and (whole := find_hub_files(CheckpointKind.PRETRAINED, repository, revision)):
                    yield whole


def _network(checkpoint: str, revision: str | None) -> HubFiles | None:
    parts = checkpoint.split("/")
    if Path(checkpoint).is_file() or checkpoint.startswith(("/", ".")) or len(parts) < 3:
        return None
    name = "/".join(parts[2:])
    # Large networks have their weights in a file beside them.
    return HubFiles("/".join(parts[:2]), revision, (name, f"{name}_data", f"{name}.data"))
