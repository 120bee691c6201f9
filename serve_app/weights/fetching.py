"""Fetches the files of checkpoints onto the machine that it runs on, one after the other, and tells how far it is.

It runs in this process, or as an actor of Ray's on a node; who drives it asks it time and again.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final

from huggingface_hub import constants
from huggingface_hub.utils import disable_progress_bars
from huggingface_hub.utils.logging import set_verbosity_error

from deployments.contract.hub_files import HubFiles, Kind, elsewhere
from serve_app.weights.problems import NothingThere, in_words
from serve_app.weights.wanted import Wanted

_MARKS: Final = ".locks"
"""A folder of the hub's own in its cache."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of one repository."""

    checkpoint: str
    problem: str = ""
    """In a line, with what to do about it; empty for one that is here now."""
    was_here: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """How far it is."""

    checkpoint: str = ""
    """Of what is being fetched."""
    got: int = 0
    """Bytes of it that are here."""
    size: int | None = None
    """Bytes of all of it; None while that is not known."""
    ended: tuple[Ended, ...] = ()
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """How one checkpoint is on this machine."""

    is_here: bool
    size: int | None
    """Bytes, as far as they are known."""


class Fetcher:
    def __init__(self) -> None:
        disable_progress_bars()
        set_verbosity_error()
        self._ended: list[Ended] = []
        self._files: HubFiles | None = None
        self._thread: Thread | None = None

    def mark(self) -> str:
        """Leaves a file in the hub's cache. Returns its name, by which others may see that they share the folder."""
        name = f"fetches-{uuid.uuid4().hex}"
        _marks().mkdir(parents=True, exist_ok=True)
        (_marks() / name).touch()
        return name

    def sees(self, names: Sequence[str]) -> frozenset[str]:
        """Those of the marks that are in the cache of this machine."""
        return frozenset(name for name in names if (_marks() / name).is_file())

    def unmark(self, name: str) -> None:
        (_marks() / name).unlink(missing_ok=True)

    def look(self, wanted: Sequence[Wanted]) -> list[Kept]:
        """In their order. The hub is not asked."""
        return [_kept(each) for each in wanted]

    def begin(self, wanted: Sequence[Wanted]) -> None:
        """In a thread of its own: `told` says what comes of it."""
        self._thread = Thread(target=self._run, args=(tuple(wanted),), daemon=True)
        self._thread.start()

    def told(self) -> Told:
        files, over = self._files, self._thread is None or not self._thread.is_alive()
        if files is None or over:
            return Told(ended=tuple(self._ended), is_over=over)
        return Told(files.repository, files.bytes_here(), files.size(), tuple(self._ended))

    def _run(self, wanted: Sequence[Wanted]) -> None:
        done, waiting = set[HubFiles](), needed(wanted)
        while waiting:
            files = waiting.pop(0)
            if files not in done:
                done.add(files)
                waiting += self._fetch(files)

    def _fetch(self, files: HubFiles) -> list[HubFiles]:
        """What its own files name beside themselves."""
        self._files = files
        try:
            was_here = files.here() is not None
            files.clear()
            folder = files.fetch()
            if files.here() is None:
                raise NothingThere
            further = list(elsewhere(folder))
        except Exception as problem:  # whatever it is, the others are fetched
            self._ended.append(Ended(files.repository, in_words(files, problem)))
            return []
        self._ended.append(Ended(files.repository, was_here=was_here))
        return further


def needed(wanted: Sequence[Wanted]) -> list[HubFiles]:
    """Of the hub, for all of it on one machine: a pipeline's configuration is part of the pipeline."""
    pipelines = {(each.checkpoint, each.revision) for each in wanted if each.kind is Kind.PIPELINE}
    found = (
        each.files()
        for each in wanted
        if each.kind is not Kind.CONFIGURATION or (each.checkpoint, each.revision) not in pipelines
    )
    return list(dict.fromkeys(files for files in found if files))


def _marks() -> Path:
    return Path(constants.HF_HUB_CACHE) / _MARKS


def _kept(wanted: Wanted) -> Kept:
    place, files = wanted.place(), wanted.files()
    if files is not None:
        return Kept(place is not None, files.size())
    if place is None or not place.exists():
        return Kept(False, None)
    within = [place] if place.is_file() else place.rglob("*")
    return Kept(True, sum(file.stat().st_size for file in within if file.is_file()))
