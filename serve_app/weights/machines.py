"""Weights on machines: this one, or several that may share the folder which checkpoints are fetched into."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from serve_app.weights.fetching import Ended, Kept, Told
from serve_app.weights.wanted import Wanted

_LOOKS_EVERY_S: Final = 0.5


class Lost(Exception):
    """A machine that is gone, or does not answer. Its text says why."""


class Fetches(Protocol):
    """As `fetching.Fetcher`, here or elsewhere. Each raises Lost."""

    def mark(self) -> str: ...
    def sees(self, names: Sequence[str]) -> frozenset[str]: ...
    def unmark(self, name: str) -> None: ...
    def look(self, wanted: Sequence[Wanted]) -> list[Kept]: ...
    def begin(self, wanted: Sequence[Wanted]) -> None: ...
    def told(self) -> Told: ...


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    where: str
    fetcher: Fetches
    wanted: tuple[Wanted, ...]
    """What replicas there may load."""


def fetched(machines: Sequence[Machine]) -> Iterator[Mapping[str, Told]]:
    """Fetches onto each what is wanted there, once where several share a folder. Says twice a second, and once more
    at the end, how far each folder is, by the machines that see it."""
    folders = _folders(machines)
    told: dict[str, Told] = {}
    going = dict[str, Machine]()
    for sharing in folders:
        where = ", ".join(each.where for each in sharing)
        all_wanted = tuple(dict.fromkeys(wanted for each in sharing for wanted in each.wanted))
        going[where], told[where] = sharing[0], Told()
        try:
            sharing[0].fetcher.begin(all_wanted)
        except Lost as problem:
            told[where] = _lost(told.pop(where), problem)
            del going[where]
    while going:
        for where, machine in list(going.items()):
            try:
                told[where] = machine.fetcher.told()
            except Lost as problem:
                told[where] = _lost(told[where], problem)
            if told[where].is_over:
                del going[where]
        yield dict(told)
        if going:
            time.sleep(_LOOKS_EVERY_S)


def _folders(machines: Sequence[Machine]) -> list[list[Machine]]:
    """The machines by the folder of the hub's that they see."""
    if len(machines) < 2:
        return [list(machines)] if machines else []
    marks, found = dict[Machine, str](), dict[object, list[Machine]]()
    try:
        for each in machines:
            try:
                marks[each] = each.fetcher.mark()
            except Lost:
                continue  # `begin` finds the same, and is where it is told
        for each in machines:
            try:
                seen: object = each.fetcher.sees(tuple(marks.values())) or each
            except Lost:
                seen = each
            found.setdefault(seen, []).append(each)
    finally:
        _unmark(marks)
    return list(found.values())


def _unmark(marks: Mapping[Machine, str]) -> None:
    for each, name in marks.items():
        try:
            each.fetcher.unmark(name)
        except Lost:  # an empty file stays
            continue


def _lost(told: Told, problem: Lost) -> Told:
    return Told(ended=(*told.ended, Ended(told.checkpoint, str(problem))), is_over=True)
