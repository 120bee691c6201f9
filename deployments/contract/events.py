"""What a model streams back while it works on a job, in this order: `Started`, any number of `Alive`, `Progress` and
`Preview`, then exactly one of `Done`, `Failed` and `Interrupted`. A stream that ends otherwise means the worker was
lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from deployments.contract.job import Output


@dataclass(frozen=True, slots=True)
class Started:
    """The job was admitted to the running batch; sent at once."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The engine still works on the job; at least one event is sent every second.

    Now and then, and before the event that ends a stream, it also tells how the replica does, whichever job it is told
    with: `counts` is what it did since it last told, by the names of `contract/counts.py`, and `setup` how it runs its
    model: device, precision, attention, ...
    """

    counts: Mapping[str, float] | None = field(default=None, compare=False)
    setup: Mapping[str, str] | None = field(default=None, compare=False)

    @property
    def report(self) -> tuple[Mapping[str, float], Mapping[str, str]] | None:
        """Counts and setup, or None; an event of a release that told neither has no such fields, either."""
        counts = getattr(self, "counts", None)
        return None if counts is None else (counts, getattr(self, "setup", None) or {})


@dataclass(frozen=True, slots=True)
class Progress:
    """Share of the job that is done, 0.0 to 1.0, never falling within an attempt.

    `batch` jobs took the last step together, in `step_s` seconds; 0 where that is not known.
    """

    fraction: float
    batch: int = field(default=0, compare=False)
    step_s: float = field(default=0.0, compare=False)

    @property
    def step_timing(self) -> tuple[int, float] | None:
        """Batch and step, or None; an event of a release that told neither has no such fields, either."""
        batch = getattr(self, "batch", 0)
        return (batch, self.step_s) if batch else None


@dataclass(frozen=True, slots=True)
class Preview:
    """A small image of the job after `step` of `steps`, stored under `key`."""

    key: str
    step: int
    steps: int


_PLACE: Final = re.compile(r"[^\s'\"()]*[/\\][^\s'\"()]*")


def for_clients(text: str, hidden: Iterable[str] = ()) -> str:
    """Returns the first line of an error's text, without paths, addresses, names of repositories and what is
    `hidden`."""
    line = text.partition("\n")[0]
    for each in filter(None, hidden):
        line = line.replace(each, "…")
    return _PLACE.sub("…", line)[:300]


class _Last:
    """Ends a stream. `device_s` is how much of the device's time the attempt took: its share of what was done for it
    together with others."""

    __slots__ = ()

    @property
    def took_s(self) -> float:
        """`device_s`, or 0; an event of a release that did not tell has no such field."""
        return getattr(self, "device_s", 0.0)


@dataclass(frozen=True, slots=True)
class Done(_Last):
    output: Output
    device_s: float = field(default=0.0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Failed(_Last):
    """This job cannot be done, and trying again would not help. `reason` is fit for the client's eyes.

    `moderated`: the model's own safety checker refuses the prompt, or withholds the result.
    """

    reason: str
    device_s: float = field(default=0.0, compare=False, kw_only=True)
    moderated: bool = field(default=False, kw_only=True)

    @property
    def was_moderated(self) -> bool:
        """Returns `moderated`; False for an event of a release that had no such field."""
        return getattr(self, "moderated", False)


@dataclass(frozen=True, slots=True)
class Interrupted(_Last):
    """This attempt can't go on, but another may. `reason` is fit for the client's eyes.

    `blame`: something broke over this job, which nobody foresaw. Otherwise something the job needs is out of reach,
    or it is the model or its device that is broken. `counts`: a job may have only so many such attempts; not where what
    all jobs share is out of reach, and so says nothing about this one.
    """

    reason: str
    blame: bool
    counts: bool = True
    device_s: float = field(default=0.0, compare=False, kw_only=True)


LAST = (Done, Failed, Interrupted)
"""Events that end a stream."""

Event: TypeAlias = Started | Alive | Progress | Preview | Done | Failed | Interrupted
