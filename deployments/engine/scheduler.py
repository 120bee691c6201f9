"""The scheduler: chooses the next batch, admits requests, and learns which batches fit into memory."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from deployments.backend import StateLike
from deployments.contract.job import GenerationJob
from deployments.contract.model import Order
from deployments.engine.cost_model import CostModel, StepCost

NO_COSTS: Final[Mapping[str, StepCost]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Thresholds of the scheduler."""

    max_unmeasured_batch: int = 2
    """Images in a batch at most while the cost model can't separate fixed cost from cost per token."""
    min_fixed_share: float = 0.02
    """Share of a step's time that its fixed cost must exceed for another image to join: less saves too little."""
    probe_interval: int = 16
    """Steps between two with about twice the images, which show whether larger batches pay after all."""
    min_learned_steps: int = 200
    """Steps after which costs are passed on to other replicas."""
    max_step_keys: int = 4096
    """Step keys remembered; the least recently used one is forgotten."""
    memory_patience: int = 200
    """Batches at the memory limit before a larger one is tried."""
    memory_growth: float = 1.1
    """Factor by which the limit of tokens grows then."""
    overdue_factor: float = 8.0
    """An image that waited this many times its solo duration steps before all that came later."""
    infeasible_factor: float = 1.5
    """An image that needs this many times the seconds left is given up: estimates are rarely that wrong."""
    deadline_factor: float = 5.0
    """Solo durations from submission to due time, in the order `deadline`."""


POLICY: Final = BatchPolicy()


class BatchMember(Protocol):
    @property
    def key(self) -> Hashable: ...
    @property
    def tokens(self) -> int: ...


B = TypeVar("B", bound=BatchMember)


class TokenLimit:
    """The most tokens believed to fit into memory.

    An amount that failed twice, to within `memory_growth`, is not tried again: the edge costs two failures in all, not
    one every `memory_patience` batches.
    """

    def __init__(self, policy: BatchPolicy = POLICY) -> None:
        self.tokens = math.inf
        self._policy = policy
        self._ceiling = math.inf
        self._failed: list[int] = []
        self._full = 0

    def record_success(self, tokens: int) -> None:
        growth = self._policy.memory_growth
        if tokens * growth < self.tokens or self.tokens >= self._ceiling:
            return
        self._full += 1
        if self._full >= self._policy.memory_patience:
            self._full = 0
            self.tokens = min(self.tokens * growth, self._ceiling)

    def record_failure(self, tokens: int) -> None:
        growth = self._policy.memory_growth
        if any(tokens < growth * failed and failed < growth * tokens for failed in self._failed):
            self._ceiling = min(self._ceiling, tokens / growth)
        self._failed.append(tokens)
        self.tokens = min(self._ceiling, tokens // 2)
        self._full = 0


class StepCosts:
    """Costs of steps by step key, and the batches that follow from them."""

    def __init__(
        self,
        max_batch: int,
        *,
        goal_s: float | None = None,
        initial: Mapping[str, StepCost] = NO_COSTS,
        policy: BatchPolicy = POLICY,
    ) -> None:
        """A step takes up to `max_batch` members and `goal_s` seconds, but always one member. `initial` is what another
        replica `learned`. Raises ValueError for a bound that allows no step."""
        if max_batch < 1 or (goal_s is not None and goal_s <= 0):
            raise ValueError("max_batch must be at least 1, goal_s above 0")
        self._max_batch = max_batch
        self._goal_s = math.inf if goal_s is None else goal_s
        self._initial = initial
        self._policy = policy
        self._by_key: OrderedDict[Hashable, _KeyCosts] = OrderedDict()

    def learned(self) -> dict[str, StepCost]:
        """Returns the costs measured here by step key, for another replica's `initial`. Thread-safe."""
        return {
            str(key): costs.model.cost
            for key, costs in list(self._by_key.items())
            if costs.model.cost is not None
            and costs.model.measured
            and costs.model.steps >= self._policy.min_learned_steps
        }

    def observe(self, batch: Sequence[BatchMember], seconds: float) -> None:
        """Records the duration of a step. All members have the same key."""
        costs, (tokens, squares) = self._get(batch[0].key), _amount(batch)
        costs.model.observe(tokens, squares, seconds)
        costs.limit.record_success(tokens)

    def shrink(self, batch: Sequence[BatchMember]) -> None:
        """Records a step that ran out of memory. A single member changes nothing: no smaller batch would help it."""
        if len(batch) > 1:
            self._get(batch[0].key).limit.record_failure(_amount(batch)[0])

    def solo_step_s(self, member: BatchMember) -> float | None:
        """Returns the seconds of a step of this member alone; None for a key never measured."""
        costs = self._find(member.key)
        cost = costs.model.cost if costs else None
        return None if cost is None else cost.seconds(*_amount([member]))

    def min_step_s(self, member: BatchMember) -> float | None:
        """Returns a lower bound of the seconds of a step of this member; None without enough measurements."""
        costs = self._find(member.key)
        return costs.model.min_seconds(*_amount([member])) if costs else None

    def choose_batch(self, ranked: Sequence[B]) -> list[B]:
        """Returns the members that should take the next step. `ranked` have one key and come best first. Empty only if
        `ranked` is.

        Every `probe_interval` steps it returns more than pay, to find out whether they do.
        """
        batch = list(ranked[:1])
        costs = self._find(ranked[0].key) if ranked else None
        cost = costs.model.cost if costs else None
        if costs is None or cost is None:
            return batch
        few, min_members, min_fixed_share = self._policy.max_unmeasured_batch, 1, self._policy.min_fixed_share
        if costs.model.steps % self._policy.probe_interval == 0:
            min_members, min_fixed_share = few, min_fixed_share / few
        is_reliable = costs.model.separates_fixed
        for member in ranked[1:]:
            pays = (
                cost.fixed > min_fixed_share * cost.seconds(*_amount(batch))
                or len(batch) < min_members
                or not is_reliable
            )
            if len(batch) >= self._max_batch or not pays:
                break
            tokens, squares = _amount([*batch, member])
            in_time = cost.seconds(tokens, squares) <= self._goal_s if is_reliable else len(batch) < few
            if tokens <= costs.limit.tokens and in_time:
                batch.append(member)
        return batch

    def _find(self, key: Hashable) -> _KeyCosts | None:
        return self._get(key) if key in self._by_key or str(key) in self._initial else None

    def _get(self, key: Hashable) -> _KeyCosts:
        costs = self._by_key.pop(key, None)
        if costs is None:
            costs = _KeyCosts(CostModel(self._initial.get(str(key))), TokenLimit(self._policy))
        self._by_key[key] = costs
        if len(self._by_key) > self._policy.max_step_keys:
            self._by_key.popitem(last=False)
        return costs


@dataclass(frozen=True, slots=True)
class _KeyCosts:
    model: CostModel
    limit: TokenLimit


def _amount(members: Sequence[BatchMember]) -> tuple[int, int]:
    """Returns the sum of the members' tokens and the sum of their squares."""
    tokens = [member.tokens for member in members]
    return sum(tokens), sum(each * each for each in tokens)


class Progressing(BatchMember, Protocol):
    @property
    def done_steps(self) -> int: ...
    @property
    def total_steps(self) -> int: ...


class RunningRequest(Protocol):
    @property
    def state(self) -> Progressing: ...
    @property
    def submitted_at(self) -> float:
        """Seconds of the engine's clock."""
        ...


class AdmissionCandidate(Protocol):
    @property
    def job(self) -> GenerationJob: ...
    @property
    def fetched(self) -> bool:
        """True when its inputs have arrived."""
        ...


R = TypeVar("R", bound=RunningRequest)
C = TypeVar("C", bound=AdmissionCandidate)


def select_batch(
    running: Sequence[R], now: float, costs: StepCosts, order: Order = "aged", policy: BatchPolicy = POLICY
) -> list[R]:
    """Returns the requests that take the next step together: of one key, as many as `costs` allows, by `order`.

    The first one decides the key. A key never measured has no known duration and goes by arrival. Empty only if
    `running` is.
    """
    if len(running) < 2:
        return list(running)
    ranked = sorted(running, key=lambda each: _rank(each, now, costs.solo_step_s(each.state) or 0.0, order, policy))
    same_key = {id(each.state): each for each in ranked if each.state.key == ranked[0].state.key}
    return [same_key[id(state)] for state in costs.choose_batch([each.state for each in same_key.values()])]


def _rank(request: RunningRequest, now: float, step_s: float, order: Order, policy: BatchPolicy) -> tuple[float, ...]:
    """Returns a sort key, ascending; ties go by arrival.

    `aged`: remaining work / (1 + wait / solo). Short work goes first, so that it does not queue behind long work, and
    less so the longer others have waited. `deadline`: the time until the image is due, `deadline_factor` times its solo
    duration after it came; those that can't meet it come last. Either would let a stream of others hold up long work
    almost without end. So an image that waited `overdue_factor` times its solo duration goes by arrival, before all
    others: later ones can't overtake it, and no key starves. `oldest`: arrival.
    """
    state, wait = request.state, now - request.submitted_at
    solo = step_s * state.total_steps
    if order == "oldest" or wait >= policy.overdue_factor * solo:
        return 0.0, request.submitted_at
    remaining = step_s * (state.total_steps - state.done_steps)
    if order == "aged":
        return 1.0, remaining / (1 + wait / solo), request.submitted_at
    slack = policy.deadline_factor * solo - wait
    return (1.0 if remaining <= slack else 2.0), slack, request.submitted_at


def is_fetched(candidate: AdmissionCandidate) -> bool:
    return candidate.fetched


def admit(
    waiting: Iterable[C], active: Sequence[GenerationJob], *, capacity: int, is_ready: Callable[[C], bool] = is_fetched
) -> list[C]:
    """Returns the first of `waiting` that may join `active` now, in order, up to `capacity`.

    Skips those that are not ready. An exclusive job joins only an empty engine, and nothing joins it. Nothing passes it
    while it waits at the head, or a steady stream of others would keep it out.
    """
    if any(job.exclusive for job in active):
        return []
    admitted: list[C] = []
    for candidate in waiting:
        if len(admitted) >= capacity:
            break
        if candidate.job.exclusive:
            return [candidate] if is_ready(candidate) and not (active or admitted) else admitted
        if is_ready(candidate):
            admitted.append(candidate)
    return admitted


def infeasible_s(state: StateLike, remaining_s: float, costs: StepCosts, policy: BatchPolicy = POLICY) -> float | None:
    """Returns the seconds that `state` needs at least, if that is `infeasible_factor` times `remaining_s`; else None.

    Steps of later keys are not counted."""
    steps = state.steps_alike
    if (costs.solo_step_s(state) or 0.0) * steps <= remaining_s:
        return None
    needed = (costs.min_step_s(state) or 0.0) * steps
    return needed if needed > policy.infeasible_factor * remaining_s else None


class MemoryLimit:
    """The largest batch believed to fit into memory, found by failing.

    Starts at `ceiling`. A size that failed twice is not tried again: the edge costs two failures in all, not one every
    `memory_patience` batches.
    """

    def __init__(self, ceiling: int, policy: BatchPolicy = POLICY) -> None:
        """Raises ValueError for a ceiling below 1."""
        if ceiling < 1:
            raise ValueError("a batch holds at least one image")
        self.size = ceiling
        self._policy = policy
        self._ceiling = ceiling
        self._failures: Counter[int] = Counter()
        self._full = 0

    def record_success(self, batch: int) -> None:
        if batch < self.size:
            return
        self._full += 1
        if self._full >= self._policy.memory_patience:
            self._full = 0
            self.size = min(self.size + 1, self._ceiling)

    def record_failure(self, batch: int) -> None:
        """Records a batch that did not fit. A single image changes nothing: no smaller batch would help it."""
        if batch == 1:
            return
        self._failures[batch] += 1
        if self._failures[batch] > 1:
            self._ceiling = min(self._ceiling, batch - 1)
        # Half the size that failed, which may have been below the limit.
        self.size = min(self._ceiling, batch // 2)
        self._full = 0
