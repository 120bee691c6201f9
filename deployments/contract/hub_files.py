"""Files of a hub repository that a checkpoint needs: for replicas that load them, and for fetching them beforehand.

A checkpoint is of one of the kinds below, which decides what of its repository is read. What is fetched lies in the
hub's cache on this machine (HF_HOME), and is not fetched again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from huggingface_hub import get_cached_repo_tree, snapshot_download
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    HFValidationError,
    LocalEntryNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import filter_repo_objects

from deployments.contract.model import local_path

TRANSFORMER_CONFIG: Final = "transformer/config.json"
"""Of a pipeline: all that the check of an uploaded adapter reads."""

_NESTED: Final = "*/*"
_PIPELINE: Final = ("*.json", _NESTED)
"""The index and the components' folders, not the same weights once more in a single file."""
_PRETRAINED: Final = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")
_PICKLED: Final = ("*.bin",)
"""Weights of old repositories. Patterns match names in folders, too."""
_STALE_S: Final = 24 * 3600.0
"""What is on its way is written to all the time."""
_MODULAR_INDEX: Final = "modular_model_index.json"


class Kind(StrEnum):
    PIPELINE = "pipeline"
    """Of diffusers: an index, and a folder for each component."""
    PRETRAINED = "model"
    """A model of transformers and its preprocessing, in the repository's uppermost folder."""
    NETWORK = "network"
    """An ONNX file, `owner/name/path/to/file.onnx`, and the weights beside it."""
    CONFIGURATION = "configuration"
    """What of a pipeline the check of uploads reads."""
    LIST = "list"
    """A file that is never on the hub."""


@dataclass(frozen=True, slots=True)
class HubFiles:
    """Those of a repository whose names match `patterns` and not `ignore_patterns`, at a branch, tag or commit
    (None: main).

    Where the repository has no safetensors in its uppermost folder, those of `pickle_patterns` belong to them, too.
    """

    repository: str
    revision: str | None
    patterns: tuple[str, ...]
    ignore_patterns: tuple[str, ...] = ()
    pickle_patterns: tuple[str, ...] = ()

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
        return folder if any(self._matching(_names(folder))) else None

    def size(self) -> int | None:
        """Bytes of all of them, here or not; None while the hub was not asked for its list."""
        try:
            tree = {each.path: each.size for each in get_cached_repo_tree(self.repository, revision=self.revision)}
        except (CachedRepoTreeNotFoundError, HFValidationError):
            return None
        return sum(tree[name] for name in self._matching(tree))

    def clear(self) -> None:
        """Takes away what of the repository was on its way in a process that was killed: nobody goes on with it."""
        for file in _incomplete_files(self.repository):
            with suppress(FileNotFoundError):  # it has come meanwhile
                if time.time() - file.stat().st_mtime > _STALE_S:
                    file.unlink()

    def _folder(self, local_files_only: bool) -> Path:
        def folder(patterns: tuple[str, ...]) -> Path:
            return Path(
                snapshot_download(
                    self.repository,
                    revision=self.revision,
                    allow_patterns=list(patterns),
                    ignore_patterns=list(self.ignore_patterns),
                    local_files_only=local_files_only,
                )
            )

        snapshot = folder(self.patterns)
        if self.pickle_patterns and not any(snapshot.glob("*.safetensors")):
            return folder((*self.patterns, *self.pickle_patterns))
        return snapshot

    def _matching(self, names: Collection[str]) -> Iterator[str]:
        patterns = list(self.patterns)
        if self.pickle_patterns and not any(name.endswith(".safetensors") and "/" not in name for name in names):
            patterns += self.pickle_patterns
        yield from filter_repo_objects(names, allow_patterns=patterns, ignore_patterns=list(self.ignore_patterns))


def find_hub_files(kind: Kind, checkpoint: str, revision: str | None = None) -> HubFiles | None:
    """None for a checkpoint that lies on this machine under its name, or can't be on the hub."""
    if kind is Kind.NETWORK:
        return _network(checkpoint, revision)
    if kind is Kind.LIST or local_path(checkpoint) is not None or checkpoint.startswith(("/", ".")):
        return None
    match kind:
        case Kind.PIPELINE:
            return HubFiles(checkpoint, revision, _PIPELINE)
        case Kind.CONFIGURATION:
            return HubFiles(checkpoint, revision, (TRANSFORMER_CONFIG,))
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
    index = pipeline / _MODULAR_INDEX
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


def _names(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _incomplete_files(repository: str) -> Iterator[Path]:
    return (Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model") / "blobs").glob("*.incomplete")
