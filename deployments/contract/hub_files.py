"""Files of a hub repository that a checkpoint needs: for replicas that load them, and for fetching them beforehand.

A checkpoint is of one of the kinds below, which decides what of its repository is read. What is fetched lies in the
hub's cache on this machine (HF_HOME), and is not fetched again.
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
"""Of a pipeline: all that the check of an uploaded adapter reads."""

_NESTED: Final = "*/*"
_PIPELINE: Final = ("*.json", _NESTED)
"""The index and the components' folders, not the same weights once more in a single file."""
_CONFIGS: Final = ("*.json", "*.txt", "*.model", "*.jinja")
_PRETRAINED: Final = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")
_PICKLED: Final = ("*.bin",)
"""Weights of old repositories. Patterns match names in folders, too."""
_STALE_S: Final = 24 * 3600.0
"""What is on its way is written to all the time."""


class Kind(StrEnum):
    PIPELINE = "pipeline"
    """Of diffusers: an index, and a folder for each component."""
    PRETRAINED = "model"
    """A model of transformers and its preprocessing, in the repository's uppermost folder."""
    CONFIGS = "configs"
    """A pipeline without weights, for those in one file."""
    NETWORK = "network"
    """One file, `owner/name/path/to/file`, and the weights beside it."""
    CONFIGURATION = "configuration"
    """What of a pipeline the check of uploads reads."""
    LIST = "list"
    """A file that is never on the hub."""


@dataclass(frozen=True, slots=True)
class HubFiles:
    """Those of a repository whose names match `patterns` and not `ignore_patterns`, at a branch, tag or commit
    (None: main).

    Where the repository has no safetensors in its uppermost folder, those of `pickle_patterns` belong to them, too.
    With `weights` they are those of a pipeline that are loaded.
    """

    repository: str
    revision: str | None
    patterns: tuple[str, ...]
    ignore_patterns: tuple[str, ...] = ()
    pickle_patterns: tuple[str, ...] = ()
    weights: WeightsChoice | None = None

    def fetch(self) -> Path:
        """The folder with them; what is not here is fetched.

        A branch or tag is looked up again, if the hub answers. Raises what `snapshot_download` does.
        """
        return self._folder(local_files_only=False)

    def cached_folder(self) -> Path | None:
        """The folder with them, if all are on this machine. The hub is not asked."""
        try:
            folder = self._folder(local_files_only=True)
        except (LocalEntryNotFoundError, HFValidationError):
            return None
        return folder if any(self._matching(list_files(folder), folder)) else None

    def size(self) -> int | None:
        """Bytes of all of them, here or not; None while the hub was not asked for its list."""
        tree = self._tree(self.revision)
        if tree is None:
            return None
        index = next(filter(None, (self._cached_file(name) for name in INDEXES)), None)
        return sum(tree[name] for name in self._matching(tree, index and index.parent))

    def clear(self) -> None:
        """Takes away what of the repository was on its way in a process that was killed: nobody goes on with it."""
        for file in _incomplete_files(self.repository):
            with suppress(FileNotFoundError):  # it has come meanwhile
                if time.time() - file.stat().st_mtime > _STALE_S:
                    file.unlink()

    def _folder(self, local_files_only: bool) -> Path:
        if self.weights is not None:
            folder = self._snapshot(INDEXES, self.revision, local_files_only)
            # The same commit, should the branch move meanwhile.
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
        """Returns the bytes of each file of the repository; None while the hub was not asked for its list."""
        try:
            return {each.path: each.size for each in get_cached_repo_tree(self.repository, revision=revision)}
        except (CachedRepoTreeNotFoundError, HFValidationError):
            return None

    def _cached_file(self, name: str) -> Path | None:
        file = try_to_load_from_cache(self.repository, name, revision=self.revision)
        return Path(file) if isinstance(file, str) else None

    def _matching(self, names: Collection[str], folder: Path | None) -> list[str]:
        """Returns those of `names` that belong to them. `folder` has the pipeline's index."""
        patterns = list(self.patterns)
        if self.pickle_patterns and not any(name.endswith(SAFETENSORS) and "/" not in name for name in names):
            patterns += self.pickle_patterns
        matching = list(filter_repo_objects(names, allow_patterns=patterns, ignore_patterns=list(self.ignore_patterns)))
        return matching if self.weights is None else choose_files(matching, folder and load_index(folder), self.weights)


def find_hub_files(
    kind: Kind, checkpoint: str, revision: str | None = None, weights: WeightsChoice = ANY_WEIGHTS
) -> HubFiles | None:
    """None for a checkpoint that lies on this machine under its name, or can't be on the hub."""
    if kind is Kind.NETWORK:
        return _network(checkpoint, revision)
    if kind is Kind.LIST or local_path(checkpoint) or Path(checkpoint).is_file() or checkpoint.startswith(("/", ".")):
        return None
    match kind:
        case Kind.PIPELINE:
            return HubFiles(checkpoint, revision, _PIPELINE, weights=weights)
        case Kind.CONFIGS:
            return HubFiles(checkpoint, revision, _CONFIGS)
        case Kind.CONFIGURATION:
            return HubFiles(checkpoint, revision, CONFIGURATION_FILES)
        case Kind.PRETRAINED:
            return HubFiles(checkpoint, revision, _PRETRAINED, ignore_patterns=(_NESTED,), pickle_patterns=_PICKLED)


def local_place(kind: Kind, checkpoint: str) -> Path:
    """Where one lies that has no files on the hub."""
    return Path(checkpoint) if kind in (Kind.NETWORK, Kind.LIST) else local_path(checkpoint) or Path(checkpoint)


def name_in(files: HubFiles, checkpoint: str) -> str:
    """Of a network, the path of its file in the repository."""
    return checkpoint.removeprefix(f"{files.repository}/")


def linked_repositories(pipeline: Path) -> Iterator[HubFiles]:
    """Of the components of a pipeline that was fetched to this folder, those that its index takes from other
    repositories. Raises ValueError for an index that is no JSON."""
    index = pipeline / INDEXES[0]
    if not index.is_file():
        return
    for entry in json.loads(index.read_text()).values():
        match entry:
            case [_, _, {"pretrained_model_name_or_path": str(repository), **rest}]:
                subfolder, revision = rest.get("subfolder") or "", rest.get("revision")
                if subfolder and not (pipeline / subfolder).is_dir():
                    yield HubFiles(repository, revision, (f"{subfolder}/*",))
                elif not subfolder and (whole := find_hub_files(Kind.PRETRAINED, repository, revision)):
                    yield whole


def _network(checkpoint: str, revision: str | None) -> HubFiles | None:
    parts = checkpoint.split("/")
    if Path(checkpoint).is_file() or checkpoint.startswith(("/", ".")) or len(parts) < 3:
        return None
    name = "/".join(parts[2:])
    # Weights of large networks lie beside them.
    return HubFiles("/".join(parts[:2]), revision, (name, f"{name}_data", f"{name}.data"))


def _incomplete_files(repository: str) -> Iterator[Path]:
    return (Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model") / "blobs").glob("*.incomplete")
