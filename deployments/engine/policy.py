"""Who goes next: pure functions, so that every rule can be tested without a model, a thread or a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from deployments.contract.job import GenerationJob
from deployments.contract.model import Order
from deployments.engine.backend import StateLike
from deployments.engine.step_costs import StepCosts

OVERDUE: Final = 8.0
"""Waits of this many times its own solo duration put a picture before every one that came later."""
SURELY: Final = 1.5
"""Times the seconds left a picture must need before it is given up: an estimate is seldom that wrong."""
WITHIN: Final = 5.0
"""Times its solo duration a picture may take, where `deadline` is the order."""


class Member(Protocol):
    """A picture in the running batch."""

    @property
    def state(self) -> StateLike: ...
    @property
    def submitted(self) -> float:
        """When the job came in, in seconds of the engine's clock."""
        ...


class Candidate(Protocol):
    """A request that waits for admission."""

    @property
    def job(self) -> GenerationJob: ...
    @property
    def fetched(self) -> bool:
        """Whether all that it needs from elsewhere is here."""
        ...


M = TypeVar("M", bound=Member)
C = TypeVar("C", bound=Candidate)


def select_batch(running: Sequence[M], now: float, costs: StepCosts, order: Order = "aged") -> list[M]:
    """The members that take the next step together: all of one key, as many as `costs` lets, first in `order` first.

    The first decides the key. A key never measured has no known duration, and goes by arrival. Empty only when
    `running` is empty.
    """
    ranked = sorted(running, key=lambda member: _rank(member, now, costs.alone(member.state), order))
    fitting = {id(member.state): member for member in ranked if member.state.key == ranked[0].state.key}
    return [fitting[id(state)] for state in costs.together([member.state for member in fitting.values()])]


def _rank(member: Member, now: float, seconds_per_step: float | None, order: Order) -> tuple[float, ...]:
    """Sorts ascending; equals by arrival.

    `aged`: by remaining work divided by (1 + wait / solo): short work first, so that it does not queue behind long
    work, and less so the longer others have waited. `deadline`: by when a picture should be done, which is `WITHIN`
    times its solo duration after it came; those that can't be any more come last. Either alone would let a stream of
    others hold up long work almost without end, so whoever has waited `OVERDUE` times its solo duration goes by
    arrival, before all others: nobody that comes later can overtake it any more, and no key starves. `oldest`: by
    arrival.
    """
    state, wait = member.state, now - member.submitted
    solo = (seconds_per_step or 0.0) * state.total_steps
    if order == "oldest" or wait >= OVERDUE * solo:
        return 0.0, member.submitted
    remaining = (seconds_per_step or 0.0) * (state.total_steps - state.done_steps)
    if order == "aged":
        return 1.0, remaining / (1 + wait / solo), member.submitted
    left = WITHIN * solo - wait
    return (1.0 if remaining <= left else 2.0), left, member.submitted


def admit(waiting: Iterable[C], active: Sequence[GenerationJob], *, room: int) -> list[C]:
    """The first of `waiting` that may join `active` now, in order, `room` of them at most.

    Who still fetches something is passed. An isolated job joins only an empty engine, and nothing joins it. Nothing
    passes it while it waits at the head, or a steady stream of others would keep it out for good.
    """
    if any(job.isolated for job in active):
        return []
    admitted: list[C] = []
    for one in waiting:
        if len(admitted) >= room:
            break
        if one.job.isolated:
            return [one] if one.fetched and not (active or admitted) else admitted
        if one.fetched:
            admitted.append(one)
    return admitted


def too_long(state: StateLike, left: float, costs: StepCosts) -> float | None:
    """Seconds that `state` needs at least, where that is so many more than are `left` that no picture is given up for
    an estimate that was wrong; else None. Other keys that follow the present one count nothing."""
    steps = state.steps_alike
    if (costs.alone(state) or 0.0) * steps <= left:
        return None
    needed = (costs.at_least(state) or 0.0) * steps
    return needed if needed > SURELY * left else None


def preview_due(done: int, total: int, every: float, shown: int) -> bool:
    """Whether a multiple of `every`, a share of the steps above 0, lies between step `shown`, of the last preview, and
    step `done` of `total`.

    Never after the last step: the picture itself is next.
    """
    # The small addend keeps 3 of 10 steps at `every=0.1` from counting as 2.9999 shares.
    return done < total and int(done / total / every + 1e-9) > int(shown / total / every + 1e-9)
