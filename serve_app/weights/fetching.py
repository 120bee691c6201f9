"""Fetches the files of checkpoints from the model hub: onto this machine, or onto every node of a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from huggingface_hub.utils import disable_progress_bars
from huggingface_hub.utils.logging import set_verbosity_error

from deployments.contract.hub_files import HubFiles, Kind, elsewhere
from serve_app.weights.problems import NothingThere, in_words
from serve_app.weights.wanted import Wanted

_OFFLINE: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Nodes have these so that replicas don't ask the hub. Whoever fetches wants to: this command's environment counts."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of one repository."""

    checkpoint: str
    problem: str = ""
    """In a line, with what to do about it; empty for one that is here now."""
    was_here: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """How one checkpoint is on this machine."""

    is_here: bool
    size: int | None
    """Bytes, as far as they are known."""


def fetch(wanted: Sequence[Wanted]) -> Iterator[Ended]:
    """Onto this machine, one repository after the other. The hub's own bars show how far it is, on a terminal.

    Processes that share a folder wait for each other's files by the hub's locks.
    """
    set_verbosity_error()
    if not sys.stderr.isatty():
        disable_progress_bars()
    done, waiting = set[HubFiles](), needed(wanted)
    while waiting:
        files = waiting.pop(0)
        if files in done:
            continue
        done.add(files)
        try:
            was_here = files.here() is not None
            files.clear()
            folder = files.fetch()
            if files.here() is None:
                raise NothingThere
            waiting += elsewhere(folder)
        except Exception as problem:  # whatever it is, the others are fetched
            yield Ended(files.repository, in_words(files, problem))
        else:
            yield Ended(files.repository, was_here=was_here)


def look(wanted: Sequence[Wanted]) -> list[Kept]:
    """On this machine, in their order. The hub is not asked."""
    return [_kept(each) for each in wanted]


def needed(wanted: Sequence[Wanted]) -> list[HubFiles]:
    """Of the hub, for all of it on one machine: a pipeline's configuration is part of the pipeline."""
    pipelines = {(each.checkpoint, each.revision) for each in wanted if each.kind is Kind.PIPELINE}
    found = (
        each.files()
        for each in wanted
        if each.kind is not Kind.CONFIGURATION or (each.checkpoint, each.revision) not in pipelines
    )
    return list(dict.fromkeys(files for files in found if files))


class Nodes:
    """The nodes of the cluster that this process has joined which may run replicas that load any of it."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        import ray

        self.wanted: Mapping[str, tuple[Wanted, ...]] = {}
        """By node, what replicas there may load."""
        self._ids: dict[str, str] = {}
        for each in ray.nodes():
            here = tuple(one for one in wanted if one.fits(each["Resources"]))
            if each["Alive"] and here:
                where = f"node {each['NodeManagerAddress']}"
                self.wanted = {**self.wanted, where: here}
                self._ids[where] = each["NodeID"]

    def fetch(self) -> Iterator[tuple[str, Ended]]:
        """On all of them at a time, with each node's own HF_HOME and token: where, and what came of one repository."""
        import ray
        from ray.exceptions import RayError

        waiting: dict[Any, str] = {self._run(fetch, where, num_returns="streaming"): where for where in self._ids}
        while waiting:
            ready: Any = ray.wait(list(waiting))[0]
            [stream] = ready
            try:
                ended: Any = ray.get(next(stream))
                yield waiting[stream], ended
            except StopIteration:
                del waiting[stream]
            except RayError as problem:
                yield waiting.pop(stream), Ended("", f"it does not answer: {_last_line(problem)}")

    def look(self) -> Mapping[str, list[Kept]]:
        """By node, how what it may load is there. Raises RayError where one does not answer."""
        import ray

        asked = {where: self._run(look, where) for where in self._ids}
        return {where: ray.get(answer) for where, answer in asked.items()}

    def _run(self, function: Any, where: str, **options: Any) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return (
            ray.remote(num_cpus=0)(function)
            .options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(self._ids[where], soft=False),
                runtime_env={"env_vars": {name: os.environ.get(name, "0") for name in _OFFLINE}},
                **options,
            )
            .remote(self.wanted[where])
        )


def _last_line(problem: Exception) -> str:
    return str(problem).strip().splitlines()[-1]


def _kept(wanted: Wanted) -> Kept:
    place, files = wanted.place(), wanted.files()
    if files is not None:
        return Kept(place is not None, files.size())
    if place is None or not place.exists():
        return Kept(False, None)
    within = [place] if place.is_file() else place.rglob("*")
    return Kept(True, sum(file.stat().st_size for file in within if file.is_file()))
