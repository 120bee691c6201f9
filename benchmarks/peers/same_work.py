"""Proof that all sides did the same work: what their processes tell, and the pictures themselves."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.asked import Asked
from benchmarks.peers.measuring import Measured
from benchmarks.peers.plan import Plan
from benchmarks.peers.request import Request
from benchmarks.peers.side import Side
from benchmarks.work import ROUNDED, Work, largest_difference

DTYPE = "float32"


def expected(request: Request, threads: int) -> Work:
    return Work((request.width, request.height), request.steps, DTYPE, threads)


def faults(side: Side, made: Measured, loop: Measured, plan: Plan) -> list[str]:
    """Requests without their picture, work that was not the one asked for, pictures that are not the loop's."""
    return [
        *_missing(side.name, made.judged),
        *_other_work(side, made.judged, plan),
        *_other_pictures(side, made, loop),
    ]


def _missing(name: str, judged: Sequence[Asked]) -> list[str]:
    missing = [one for one in judged if not one.drawn]
    if not missing:
        return []
    seen = sorted({one.problem or "a picture of another size" for one in missing})
    return [f"{name}: {len(missing)} of {len(judged)} requests had no picture as asked for ({', '.join(seen)})"]


def _other_work(side: Side, judged: Sequence[Asked], plan: Plan) -> list[str]:
    """Where a side tells of its work at all."""
    other = {
        f"{side.name}: computed {work} where {wanted} was asked for"
        for one in judged
        if (work := side.work(one)) is not None and work != (wanted := expected(one.request, plan.threads))
    }
    return sorted(other)


def _other_pictures(side: Side, made: Measured, loop: Measured) -> list[str]:
    """Of those drawn alone, which come out pixel by pixel the same only if size, steps, precision and seed are.

    But for roundings where a side tells nothing of its work: it may have other threads than the loop.
    """
    other = []
    for shape, asked in made.solo.items():
        for one, yardstick in zip(asked, loop.solo[shape], strict=True):
            difference = largest_difference(one.jpeg, yardstick.jpeg)
            levels = ROUNDED if side.work(one) is None else 0
            if difference is None or difference > levels:
                other.append(
                    f"{side.name}: {shape} with seed {one.request.seed} is not the loop's picture ({difference})"
                )
    return other
