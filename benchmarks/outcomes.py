"""What became of the tasks of a load run, one by one and in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serve_app.load.spread import Spread

TERMINAL = {"Ready", "Error", "Request Moderated", "Content Moderated"}


@dataclass(slots=True)
class Outcome:
    """One arrival. Times are epoch seconds; `started` and `ended` by the server's clock, the others by the client's."""

    scheduled: float
    acknowledged: float | None = None
    """When the answer with an id was there; None: the task was not accepted."""
    refusal: str = ""
    """Why it was not accepted: `HTTP 429`, or the name of a connection error."""
    status: str = ""
    """The last status seen."""
    final: float | None = None
    """When a terminal status was first seen."""
    started: float | None = None
    ended: float | None = None
    polls: int = 0
    poll_errors: int = 0

    @property
    def accepted(self) -> bool:
        return self.acknowledged is not None

    @property
    def lost(self) -> bool:
        """Accepted, and never seen to end."""
        return self.accepted and self.final is None

    @property
    def total(self) -> float | None:
        """From the moment it should have been sent, so that a client that falls behind hides nothing."""
        return None if self.final is None else self.final - self.scheduled

    def good(self, slo: float) -> bool:
        return self.status == "Ready" and self.total is not None and self.total <= slo


def figures(outcomes: Sequence[Outcome], duration: float, slo: float) -> dict[str, Any]:
    """Counts, and times in seconds. `queue_wait` compares two clocks; between machines it is off by their difference.

    `goodput` is the number of pictures that came within `slo` seconds, per second of arrivals.
    """
    accepted = [one for one in outcomes if one.acknowledged is not None]
    good = sum(one.good(slo) for one in outcomes)
    return {
        "arrived": len(outcomes),
        "accepted": len(accepted),
        "refused": dict(Counter(one.refusal for one in outcomes if one.refusal)),
        "statuses": dict(Counter(one.status for one in accepted)),
        "lost": sum(one.lost for one in outcomes),
        "goodput_per_s": round(good / duration, 4),
        "within_slo": round(good / len(outcomes), 4) if outcomes else None,
        "polls_per_task": round(sum(one.polls for one in accepted) / len(accepted), 2) if accepted else None,
        "poll_errors": sum(one.poll_errors for one in outcomes),
        **{name: spread and spread.as_json() for name, spread in spreads(outcomes).items()},
    }


def times(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Seconds by what they measure, of the tasks that got so far."""
    return {
        "acknowledgement": [one.acknowledged - one.scheduled for one in outcomes if one.acknowledged is not None],
        "queue_wait": [one.started - one.acknowledged for one in outcomes if one.started and one.acknowledged],
        "service": [one.ended - one.started for one in outcomes if one.started and one.ended],
        "total": [one.total for one in outcomes if one.total is not None],
    }


def spreads(outcomes: Sequence[Outcome]) -> dict[str, Spread | None]:
    return {name: Spread.of(values) for name, values in times(outcomes).items()}
