"""The scheduler: pure functions that choose who steps next, with whom, and how many fit into memory."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from deployments.backend import StateLike
from deployments.contract.job import GenerationJob
from deployments.contract.model import Order
from deployments.engine.cost_model import CostModel, StepCost

FIXED_SHARE: Final = 0.02
"""No more images join a step whose fixed cost is no more of it than this: they could make it cheaper by no more."""
PATIENCE: Final = 200
"""Batches as large as memory seems to allow after which a larger one is tried."""
GROWTH: Final = 1.1
"""By how much larger."""
FEW: Final = 2
"""Until the model is telling, so many images at most go together, to learn."""
LOOK_EVERY: Final = 16
"""Steps after which one of about twice the size is taken, lest a mistake about what pays lasts."""
WORTH_TELLING: Final = 200
"""Steps after which another replica may begin with what was learned from them."""
MAX_KEYS: Final = 4096
"""Kinds of steps remembered; past that the one unused for longest is forgotten and would be learned anew."""
NO_COSTS: Final[Mapping[str, StepCost]] = MappingProxyType({})


class BatchMember(Protocol):
    """An image in a step."""

    @property
    def key(self) -> Hashable:
        """Names the kind."""
        ...

    @property
    def tokens(self) -> int: ...


B = TypeVar("B", bound=BatchMember)


class TokenLimit:
    """The most tokens believed to fit into memory.

    What failed twice, or nearly as much, is not tried again: an edge costs two failures in all and not one every
    `PATIENCE` batches.
    """

    def __init__(self) -> None:
        self.tokens = math.inf
        self._ceiling = math.inf
        self._failed: list[int] = []
        self._full = 0

    def record_success(self, tokens: int) -> None:
        if tokens * GROWTH < self.tokens or self.tokens >= self._ceiling:
            return
        self._full += 1
        if self._full >= PATIENCE:
            self._full = 0
            self.tokens = min(self.tokens * GROWTH, self._ceiling)

    def record_failure(self, tokens: int) -> None:
        if any(tokens < GROWTH * failed and failed < GROWTH * tokens for failed in self._failed):
            self._ceiling = min(self._ceiling, tokens / GROWTH)
        self._failed.append(tokens)
        self.tokens = min(self._ceiling, tokens // 2)
        self._full = 0


class StepCosts:
    """What steps cost, by the kind of their members, and who may take one together."""

    def __init__(
        self, max_batch: int, *, goal_s: float | None = None, initial: Mapping[str, StepCost] = NO_COSTS
    ) -> None:
        """`max_batch` members at most take a step together, and no more than `goal_s` seconds' worth of them: but
        always one. `initial` is what another replica `learned`. Raises ValueError for a bound that allows none."""
        if max_batch < 1 or (goal_s is not None and goal_s <= 0):
            raise ValueError("max_batch must be at least one, a goal for steps above 0")
        self._max_batch = max_batch
        self._goal_s = math.inf if goal_s is None else goal_s
        self._initial = initial
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()

    def learned(self) -> dict[str, StepCost]:
        """What was measured here, by the names of kinds, for another replica to begin with. From any thread."""
        return {
            str(key): kind.model.cost
            for key, kind in list(self._kinds.items())
            if kind.model.cost is not None and kind.model.measured and kind.model.steps >= WORTH_TELLING
        }

    def observe(self, batch: Sequence[BatchMember], seconds: float) -> None:
        """A step of these members, all of one kind, took so long."""
        kind, (tokens, squares) = self._kind(batch[0].key), _amount(batch)
        kind.model.observe(tokens, squares, seconds)
        kind.room.record_success(tokens)

    def shrink(self, batch: Sequence[BatchMember]) -> None:
        """A step of these members ran out of memory. One alone changes nothing: no other batch would have helped it."""
        if len(batch) > 1:
            self._kind(batch[0].key).room.record_failure(_amount(batch)[0])

    def solo_step_s(self, member: BatchMember) -> float | None:
        """Seconds of a step of this member alone; None as long as nothing of its kind was measured."""
        kind = self._kind_if_known(member.key)
        cost = kind.model.cost if kind else None
        return None if cost is None else cost.seconds(*_amount([member]))

    def min_step_s(self, member: BatchMember) -> float | None:
        """Seconds that no step of this member takes less than; None unless enough was measured here to be sure."""
        kind = self._kind_if_known(member.key)
        return kind.model.min_seconds(*_amount([member])) if kind else None

    def choose_batch(self, ranked: Sequence[B]) -> list[B]:
        """Of members of one kind, the best first: those that should take the next step. Empty only if there are none.

        Now and then more than pay, to see whether they would.
        """
        kind = self._kind_if_known(ranked[0].key) if ranked else None
        looking = kind is not None and kind.model.steps % LOOK_EVERY == 0
        return self._chosen(ranked, FIXED_SHARE / FEW if looking else FIXED_SHARE, FEW if looking else 1)

    def _chosen(self, ranked: Sequence[B], fixed_share: float, at_least: int) -> list[B]:
        """Members join while the fixed cost is more than `fixed_share` of the step, or fewer than `at_least` have."""
        chosen = list(ranked[:1])
        kind = self._kind_if_known(ranked[0].key) if ranked else None
        cost = kind.model.cost if kind else None
        if kind is None or cost is None:
            return chosen
        telling = kind.model.telling
        for member in ranked[1:]:
            pays = cost.fixed > fixed_share * cost.seconds(*_amount(chosen)) or len(chosen) < at_least or not telling
            if len(chosen) >= self._max_batch or not pays:
                break
            tokens, squares = _amount([*chosen, member])
            in_time = cost.seconds(tokens, squares) <= self._goal_s if telling else len(chosen) < FEW
            if tokens <= kind.room.tokens and in_time:
                chosen.append(member)
        return chosen

    def _kind_if_known(self, key: Hashable) -> _Kind | None:
        """None for a kind of which nothing is known."""
        return self._kind(key) if key in self._kinds or str(key) in self._initial else None

    def _kind(self, key: Hashable) -> _Kind:
        kind = self._kinds.pop(key, None) or _Kind(self._initial.get(str(key)))
        self._kinds[key] = kind
        if len(self._kinds) > MAX_KEYS:
            self._kinds.popitem(last=False)
        return kind


class _Kind:
    def __init__(self, initial: StepCost | None) -> None:
        self.model = CostModel(initial)
        self.room = TokenLimit()


def _amount(members: Sequence[BatchMember]) -> tuple[int, int]:
    """Tokens of all, and the sum of each one's squared."""
    tokens = [member.tokens for member in members]
    return sum(tokens), sum(each * each for each in tokens)


OVERDUE: Final = 8.0
"""Waits of this many times its own solo duration put an image before every one that came later."""
SURELY: Final = 1.5
"""Times the seconds left an image must need before it is given up: an estimate is seldom that wrong."""
WITHIN: Final = 5.0
"""Times its solo duration an image may take, where `deadline` is the order."""


class Progressing(BatchMember, Protocol):
    """An image and how far it is."""

    @property
    def done_steps(self) -> int: ...
    @property
    def total_steps(self) -> int: ...


class Member(Protocol):
    """An image in the running batch."""

    @property
    def state(self) -> Progressing: ...
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
    if len(running) < 2:
        return list(running)
    ranked = sorted(running, key=lambda member: _rank(member, now, costs.solo_step_s(member.state), order))
    fitting = {id(member.state): member for member in ranked if member.state.key == ranked[0].state.key}
    return [fitting[id(state)] for state in costs.choose_batch([member.state for member in fitting.values()])]


def _rank(member: Member, now: float, seconds_per_step: float | None, order: Order) -> tuple[float, ...]:
    """Sorts ascending; equals by arrival.

    `aged`: by remaining work divided by (1 + wait / solo): short work first, so that it does not queue behind long
    work, and less so the longer others have waited. `deadline`: by when an image should be done, which is `WITHIN`
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


def is_fetched(candidate: Candidate) -> bool:
    return candidate.fetched


def admit(
    waiting: Iterable[C], active: Sequence[GenerationJob], *, room: int, ready: Callable[[C], bool] = is_fetched
) -> list[C]:
    """The first of `waiting` that may join `active` now, in order, `room` of them at most.

    Who is not `ready`, as it still fetches something, is passed. An exclusive job joins only an empty engine, and
    nothing joins it. Nothing passes it while it waits at the head, or a steady stream of others would keep it out.
    """
    if any(job.exclusive for job in active):
        return []
    admitted: list[C] = []
    for one in waiting:
        if len(admitted) >= room:
            break
        if one.job.exclusive:
            return [one] if ready(one) and not (active or admitted) else admitted
        if ready(one):
            admitted.append(one)
    return admitted


def too_long(state: StateLike, remaining_s: float, costs: StepCosts) -> float | None:
    """Seconds that `state` needs at least if that is `SURELY` times more than `remaining_s`, else None.

    Other keys that follow the present one count nothing."""
    steps = state.steps_alike
    if (costs.solo_step_s(state) or 0.0) * steps <= remaining_s:
        return None
    needed = (costs.min_step_s(state) or 0.0) * steps
    return needed if needed > SURELY * remaining_s else None


def preview_due(done: int, total: int, every: float, last: int) -> bool:
    """Whether a multiple of `every`, a share of the steps above 0, lies between step `last`, of the last preview, and
    step `done` of `total`.

    Never after the last step: the image itself is next.
    """
    # The small addend keeps 3 of 10 steps at `every=0.1` from counting as 2.9999 shares.
    return done < total and int(done / total / every + 1e-9) > int(last / total / every + 1e-9)


MEMORY_PATIENCE = 200
"""Full batches after which one image more is tried again."""


class MemoryLimit:
    """The largest batch believed to fit into memory, found by failing.

    Starts at `ceiling`. A size that failed twice is not tried again, so a size at the very edge costs two failures
    in all and not one every `PATIENCE` batches.
    """

    def __init__(self, ceiling: int) -> None:
        """Raises ValueError for a ceiling below one."""
        if ceiling < 1:
            raise ValueError("a batch holds at least one image")
        self.size = ceiling
        self._ceiling = ceiling
        self._failures: Counter[int] = Counter()
        self._full = 0

    def record_success(self, batch: int) -> None:
        if batch < self.size:
            return
        self._full += 1
        if self._full >= MEMORY_PATIENCE:
            self._full = 0
            self.size = min(self.size + 1, self._ceiling)

    def record_failure(self, batch: int) -> None:
        """An image that fails alone changes nothing: no size of batch would have helped it."""
        if batch == 1:
            return
        self._failures[batch] += 1
        if self._failures[batch] > 1:
            self._ceiling = min(self._ceiling, batch - 1)
        # Halved from the size that failed, which may have been a batch that was not full.
        self.size = min(self._ceiling, batch // 2)
        self._full = 0
