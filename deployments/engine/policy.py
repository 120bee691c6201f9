"""Who goes next: pure functions, so that every rule can be tested without a model, a thread or a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from deployments.contract.job import GenerationJob
from deployments.engine.backend import StateLike
from deployments.engine.step_costs import StepCosts

OVERDUE = 8.0
"""Waits of this many times its own solo duration put a picture before every one that came later."""


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


def select_batch(running: Sequence[M], now: float, costs: StepCosts) -> list[M]:
    """The members that take the next step together: all of one key, as many as `costs` lets, best rank first.

    The best-ranked member decides the key. A member's rank is its remaining work divided by (1 + wait / solo): short
    work first, so that it does not queue behind long work, and less so the longer others have waited. Rank alone
    would let a stream of short work hold up long work almost without end, so whoever has waited `OVERDUE` times its
    solo duration goes by arrival, before all others: nobody that comes later can overtake it any more, and no key
    starves. A key never measured has no known duration, and goes by arrival too. Empty only when `running` is empty.
    """
    ranked = sorted(running, key=lambda member: _rank(member, now, costs.alone(member.state)))
    fitting = {id(member.state): member for member in ranked if member.state.key == ranked[0].state.key}
    return [fitting[id(state)] for state in costs.together([member.state for member in fitting.values()])]


def _rank(member: Member, now: float, seconds_per_step: float | None) -> tuple[bool, float, float]:
    """Sorts ascending: overdue by arrival, then the others by aged remaining work, equals by arrival."""
    state, wait = member.state, now - member.submitted
    solo = (seconds_per_step or 0.0) * state.total_steps
    if wait >= OVERDUE * solo:
        return False, 0.0, member.submitted
    remaining = (seconds_per_step or 0.0) * (state.total_steps - state.done_steps)
    return True, remaining / (1 + wait / solo), member.submitted


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


def expired(job: GenerationJob, now: float) -> bool:
    """Whether nobody waits for `job` any more; `now` in epoch seconds, as the deadline."""
    return job.deadline is not None and job.deadline <= now


def preview_due(done: int, total: int, every: float) -> bool:
    """Whether step `done` of `total` crossed a multiple of `every`, a share of the steps above 0.

    Never after the last step: the picture itself is next.
    """
    # The small addend keeps 3 of 10 steps at `every=0.1` from counting as 2.9999 shares.
    return done < total and int(done / total / every + 1e-9) > int((done - 1) / total / every + 1e-9)
