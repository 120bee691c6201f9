"""Events that a model streams while it works on a job, in this order: `Started`, any number of `Alive`, `Progress` and
`Preview`, then exactly one of `Done`, `Failed` and `Interrupted`. A stream that ends otherwise means that the replica
is lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from deployments.contract.job import Output
from deployments.contract.request import restore_fields


@dataclass(frozen=True, slots=True)
class Started:
    """The job was admitted to the running batch; sent at once."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The engine works on the job. At least one event is sent every second.

    Some also carry a report on the whole replica, not only on the job: `counts` are the counters added since the last
    report, by the names of `contract/counts.py`, and `setup` describes the running model: device, precision, ...
    """

    counts: Mapping[str, float] | None = field(default=None, compare=False)
    setup: Mapping[str, str] | None = field(default=None, compare=False)

    @property
    def report(self) -> tuple[Mapping[str, float], Mapping[str, str]] | None:
        """Counters and setup; None without a report."""
        return None if self.counts is None else (self.counts, self.setup or {})


@dataclass(frozen=True, slots=True)
class Progress:
    """Share of the job that is done, 0 to 1, never falling within an attempt.

    The last step took `step_s` seconds, with `batch` jobs in it; 0 if unknown.
    """

    fraction: float
    batch: int = field(default=0, compare=False)
    step_s: float = field(default=0.0, compare=False)

    @property
    def step_timing(self) -> tuple[int, float] | None:
        """Batch and seconds of the last step; None if unknown."""
        return (self.batch, self.step_s) if self.batch else None


@dataclass(frozen=True, slots=True)
class Preview:
    """A small image of the job after `step` of `steps`, stored under `key`."""

    key: str
    step: int
    steps: int


_PATH: Final = re.compile(r"[^\s'\"()]*[/\\][^\s'\"()]*")


def for_clients(text: str, hidden: Iterable[str] = ()) -> str:
    """Returns the first line of an error's text without paths, addresses, repositories and the texts in `hidden`."""
    line = text.partition("\n")[0]
    for each in filter(None, hidden):
        line = line.replace(each, "…")
    return _PATH.sub("…", line)[:300]


@dataclass(frozen=True, slots=True)
class Done:
    """The result is stored. `device_s`: seconds of the device spent on the attempt; calls for several jobs are
    split."""

    output: Output
    device_s: float = field(default=0.0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Failed:
    """The job can't be done, and another attempt would fail, too. `reason` is shown to the client.

    `moderated`: the model's own safety checker refused the prompt or withheld the result. `device_s` as for Done.
    """

    reason: str
    device_s: float = field(default=0.0, compare=False, kw_only=True)
    moderated: bool = field(default=False, kw_only=True)

    __setstate__ = restore_fields  # release 0.2 has no `moderated`


@dataclass(frozen=True, slots=True)
class Interrupted:
    """This attempt can't continue, but another may. `reason` is shown to the client. `device_s` as for Done.

    `blame`: an unexpected error that the job may have caused; False if something that the job needs can't be reached,
    or the model or device is broken. `counts`: the attempt counts towards the job's limit; False if a resource of all
    jobs can't be reached.
    """

    reason: str
    blame: bool
    counts: bool = True
    device_s: float = field(default=0.0, compare=False, kw_only=True)


LAST = (Done, Failed, Interrupted)
"""Events that end a stream."""

Event: TypeAlias = Started | Alive | Progress | Preview | Done | Failed | Interrupted
