"""Weights of checkpoints: fetching them from the hub, and finding them, here or on every node."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import disable_progress_bars
from huggingface_hub.utils.logging import set_verbosity_error

from deployments.contract.hub_files import CheckpointKind, HubFiles, linked_repositories
from deployments.proxies import ENVIRONMENT, apply_proxy
from serve_app.cluster.checkpoints import RequiredCheckpoint, live_nodes

_TOKEN: Final = "set HF_TOKEN or HF_TOKEN_PATH where it is fetched to a token"
_CORRECT: Final = "correct it in the catalog or the settings"
_OFFLINE: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables by which replicas on a node don't call the hub. Fetching follows those of this command instead."""


class NoMatchingFiles(Exception):
    """The repository has none of the files."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    checkpoint: str
    problem: str = ""
    """Problem and remedy on one line; empty for a checkpoint that is here now."""
    was_here: bool = False


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """A checkpoint on this machine."""

    is_here: bool
    size: int | None
    """Bytes; None if unknown."""


def fetch_weights(checkpoints: Sequence[RequiredCheckpoint], proxy: str = ENVIRONMENT) -> Iterator[FetchResult]:
    """Fetches the repositories of the hub to this machine, one after the other. A terminal shows the hub's bars.

    Processes that share a folder wait for each other's files by the hub's locks. `proxy` is the setting
    `network.proxy`.
    """
    apply_proxy(proxy)
    set_verbosity_error()
    if not sys.stderr.isatty():
        disable_progress_bars()
    done, waiting = set[HubFiles](), hub_files(checkpoints)
    while waiting:
        files = waiting.pop(0)
        if files in done:
            continue
        done.add(files)
        try:
            was_here = files.cached_folder() is not None
            files.clear()
            folder = files.fetch()
            if files.cached_folder() is None:
                raise NoMatchingFiles
            waiting += linked_repositories(folder)
        except Exception as problem:  # the others are fetched all the same
            yield FetchResult(files.repository, describe(files, problem))
        else:
            yield FetchResult(files.repository, was_here=was_here)


def describe(files: HubFiles, problem: Exception) -> str:
    """Returns problem and remedy. The hub's own message is left out: it may hold signed URLs."""
    match problem:
        case GatedRepoError():
            page = f"{constants.ENDPOINT}/{files.repository}"
            return f"it is gated: accept its terms at {page}, and {_TOKEN} of that account"
        case RepositoryNotFoundError():
            return f"the hub has no such repository, or it is private: {_CORRECT}, or {_TOKEN} that may read it"
        case RevisionNotFoundError():
            return f"it has no revision {files.revision}: {_CORRECT}"
        case NoMatchingFiles():
            return f"it has no files like {', '.join(files.patterns)}: {_CORRECT}"
        case json.JSONDecodeError():
            return "its index is not JSON: it is broken on the hub, or here"
        case HFValidationError():
            return f"that is no name of a repository on the hub: {_CORRECT}"
        case LocalEntryNotFoundError() if constants.is_offline_mode():
            return "not here, and HF_HUB_OFFLINE is set for this command: fetch with HF_HUB_OFFLINE=0"
        case LocalEntryNotFoundError():
            cause = type(problem if problem.__cause__ is None else problem.__cause__).__name__
            return f"{constants.ENDPOINT} could not be reached ({cause}): check the connection from there, fetch again"
        case HfHubHTTPError():
            return f"{constants.ENDPOINT} answered {problem.response.status_code}: {_TOKEN} that may read it, or wait"
        case OSError(errno=errno.ENOSPC):
            return f"the disk of {constants.HF_HUB_CACHE} is full"
        case OSError(strerror=str(reason)):
            return f"{constants.HF_HUB_CACHE} can't be written: {reason}"
    return f"it broke off ({type(problem).__name__}): fetch again, complete files are kept"


def find_weights(checkpoints: Sequence[RequiredCheckpoint]) -> list[LocalCheckpoint]:
    """Looks for the checkpoints on this machine, without calls of the hub. Returns them in their order."""
    return [_locate(each) for each in checkpoints]


def _locate(checkpoint: RequiredCheckpoint) -> LocalCheckpoint:
    path, files = checkpoint.path(), checkpoint.files()
    if files is not None:
        return LocalCheckpoint(path is not None, files.size())
    if path is None or not path.exists():
        return LocalCheckpoint(False, None)
    return LocalCheckpoint(True, sum(file.stat().st_size for file in checkpoint.local_files(path)))


def hub_files(checkpoints: Sequence[RequiredCheckpoint]) -> list[HubFiles]:
    """Returns the files to fetch, each repository once: a pipeline includes its configuration."""
    pipelines = {(each.checkpoint, each.revision) for each in checkpoints if each.kind is CheckpointKind.PIPELINE}
    files_by_checkpoint = (
        each.files()
        for each in checkpoints
        if each.kind is not CheckpointKind.CONFIGURATION or (each.checkpoint, each.revision) not in pipelines
    )
    return list(dict.fromkeys(files for files in files_by_checkpoint if files))


class Nodes:
    """The nodes of the joined cluster that may run replicas with any of the checkpoints."""

    def __init__(self, checkpoints: Sequence[RequiredCheckpoint]) -> None:
        nodes = [each for each in live_nodes(checkpoints) if each.checkpoints]
        self.checkpoints = {each.name: each.checkpoints for each in nodes}
        """Checkpoints that replicas on a node may load, by node."""
        self._ids = {each.name: each.id for each in nodes}

    def fetch(self, proxy: str) -> Iterator[tuple[str, FetchResult]]:
        """Fetches on all nodes at once, with each node's own HF_HOME and token. Yields the node of each result."""
        import ray
        from ray.exceptions import RayError

        waiting: dict[Any, str] = {
            self._run(fetch_weights, where, proxy, num_returns="streaming"): where for where in self._ids
        }
        while waiting:
            ready: Any = ray.wait(list(waiting))[0]
            [stream] = ready
            try:
                result: Any = ray.get(next(stream))
                yield waiting[stream], result
            except StopIteration:
                del waiting[stream]
            except RayError as problem:
                yield waiting.pop(stream), FetchResult("", f"it does not answer: {_last_line(problem)}")

    def find(self) -> Mapping[str, list[LocalCheckpoint]]:
        """Looks for each node's checkpoints. Raises RayError if a node does not answer."""
        import ray

        calls = {where: self._run(find_weights, where) for where in self._ids}
        return {where: ray.get(answer) for where, answer in calls.items()}

    def _run(self, function: Any, where: str, *args: Any, **options: Any) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return (
            ray.remote(num_cpus=0)(function)
            .options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(self._ids[where], soft=False),
                runtime_env={"env_vars": {name: os.environ.get(name, "0") for name in _OFFLINE}},
                **options,
            )
            .remote(self.checkpoints[where], *args)
        )


def _last_line(problem: Exception) -> str:
    return str(problem).strip().splitlines()[-1]
