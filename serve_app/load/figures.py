"""What a run comes to, in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve_app.load import fairness
from serve_app.load.outcome import Outcome
from serve_app.load.spread import Spread


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a run that counts, in seconds after its start."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def holds(self, moment: float | None) -> bool:
        return moment is not None and self.begin <= moment < self.end


def figures(outcomes: Sequence[Outcome], window: Window, weights: Mapping[str, float]) -> dict[str, Any]:
    """Counts, and times in seconds, of the requests that were to be sent in the window; `weights` by tenant.

    `goodput_per_s`: results that came within the objective, per second of arrivals. `attainment`: their share of all
    requests, refused, failed and lost ones included. `throughput_per_s` and `megapixel_steps_per_s`: what came in the
    window, whenever it was asked for; the latter None where a request leaves size or steps to the server. `queue_wait`
    compares two clocks; between machines it is off by their difference.
    """
    ours = [one for one in outcomes if not one.warm_up]
    ended = [one for one in ours if one.end != "interrupted"]
    good = sum(one.good for one in ended)
    came = [one for one in outcomes if one.served and window.holds(one.final)]
    works = [one.shape.work for one in came]
    known = [work for work in works if work is not None]
    accepted = [one for one in ours if one.acknowledged is not None]
    return {
        "requests": len(ours),
        "seconds": round(window.seconds, 3),
        "ends": dict(Counter(one.end for one in ours)),
        "refusals": _reasons(ours, "refused"),
        "failures": _reasons(ours, "failed"),
        "lost": sum(one.end == "lost" for one in outcomes),
        "goodput_per_s": _rate(good, window),
        "attainment": round(good / len(ended), 4) if ended else None,
        "throughput_per_s": _rate(len(came), window),
        "megapixel_steps_per_s": _rate(sum(known), window) if len(known) == len(works) else None,
        "polls_per_task": round(sum(one.polls for one in accepted) / len(accepted), 2) if accepted else None,
        "poll_errors": sum(one.poll_errors for one in ours),
        **{name: _as_json(values) for name, values in times(ours).items()},
        "kinds": {kind: _of_kind([one for one in ended if one.kind == kind]) for kind in _kinds(ended)},
        "fairness": fairness.figures(ended, weights),
    }


def times(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Seconds by what they measure, of the requests that got so far. `time_to_result` is as the client saw it,
    `time_to_end` by the server's clock: polling adds to the first alone."""
    served = [one for one in outcomes if one.served]
    return {
        "acknowledgement": [one.acknowledged - one.intended for one in outcomes if one.acknowledged is not None],
        "queue_wait": [
            one.started - one.acknowledged for one in served if one.started is not None and one.acknowledged is not None
        ],
        "service_time": [
            one.ended - one.started for one in served if one.started is not None and one.ended is not None
        ],
        "time_to_end": [one.ended - one.intended for one in served if one.ended is not None],
        "time_to_result": [took for one in served if (took := one.time_to_result) is not None],
    }


def _of_kind(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "requests": len(outcomes),
        "served": sum(one.served for one in outcomes),
        "objective_s": outcomes[0].objective,
        "attainment": round(sum(one.good for one in outcomes) / len(outcomes), 4),
        "time_to_result": _as_json(times(outcomes)["time_to_result"]),
    }


def _kinds(outcomes: Sequence[Outcome]) -> list[str]:
    return [kind for kind, _ in Counter(one.kind for one in outcomes).most_common()]


def _reasons(outcomes: Sequence[Outcome], end: str) -> dict[str, int]:
    return dict(Counter(one.reason for one in outcomes if one.end == end).most_common())


def _rate(amount: float, window: Window) -> float | None:
    return round(amount / window.seconds, 4) if window.seconds > 0 else None


def _as_json(values: Sequence[float]) -> dict[str, float] | None:
    spread = Spread.of(values)
    return spread and spread.as_json()
