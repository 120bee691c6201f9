"""A simulation of a model's queue and replicas on a virtual clock.

Decisions are made by the production code: the scheduler of the step engine, the autoscaling policy, Ray Serve's delays.
Durations come from the model's profile. The queue is as fair as `tasks/fair.lua`; a test compares the two.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from deployments.engine.cost_model import StepCost
from deployments.engine.scheduler import StepCosts, select_batch
from serve_app.cluster.autoscaling import Forecast, Load
from serve_app.config.model_settings import AutoscalingSettings
from serve_app.planning.profile import ModelProfile
from serve_app.ray_internals import ScalingDecision

_TOKENS_PER_MEGAPIXEL: Final = 1000
"""Resolution of sizes in the scheduler, which counts in whole tokens."""
_CONTROL_PERIOD_S: Final = 1.0
_NO_DECISION: Final = {"target_wait_s", "metrics_interval_s", "look_back_period_s", "aggregation_function"}
"""Autoscaling settings of the policy and of Ray's measurements, which the decision does not read."""
_DECAY: Final = 0.98
"""Weight of earlier tasks in the mean cost of work, as in `tasks/complete.lua`."""


@dataclass(slots=True, eq=False)
class SimulatedTask:
    """One arrival at `at` seconds, with `megapixels` per step, and its progress. A task of the engine's scheduler."""

    at: float
    megapixels: float
    total_steps: int
    tenant: str = ""
    done_steps: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    device_s: float = 0.0

    @property
    def submitted_at(self) -> float:
        """Time of arrival at its replica, by which the scheduler orders tasks."""
        return self.at if self.started_at is None else self.started_at

    @property
    def work(self) -> float:
        return max(self.megapixels * self.total_steps, 0.001)

    @property
    def key(self) -> Hashable:
        return "image"

    @property
    def tokens(self) -> int:
        return max(1, round(self.megapixels * _TOKENS_PER_MEGAPIXEL))

    @property
    def state(self) -> SimulatedTask:
        return self


class FairQueue:
    """Start-time fair queueing over tenants, all of one weight."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, SimulatedTask]] = []
        self._numbers = itertools.count()
        self._clock = 0.0
        self._ends: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, task: SimulatedTask) -> None:
        start = max(self._clock, self._ends.get(task.tenant, 0.0))
        self._ends[task.tenant] = start + task.work
        heapq.heappush(self._heap, (start, next(self._numbers), task))

    def pop(self) -> SimulatedTask:
        start, _, task = heapq.heappop(self._heap)
        self._clock = max(self._clock, start)
        if not self._heap:  # no tenant waits, so earlier shares no longer matter
            self._clock = max(self._ends.values())
            self._ends.clear()
        return task


@dataclass(slots=True, eq=False)
class _Replica:
    tasks: set[SimulatedTask] = field(default_factory=set)
    """All tasks in the replica, in any stage."""
    stepping: list[SimulatedTask] = field(default_factory=list)
    in_step: bool = False
    encoder_free: float = 0.0
    finisher_free: float = 0.0
    leaving: bool = False
    lost: bool = False

    @property
    def held(self) -> int:
        return len(self.tasks)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    results: Sequence[float]
    """Seconds from each arrival to its result."""
    waits: Sequence[float]
    """Seconds from each arrival to its admission by a replica."""
    elapsed_s: float
    replica_s: float
    """Paid replica seconds, including loading and leaving replicas."""
    busy_s: float
    """Replica seconds spent in steps."""
    timeline: Sequence[tuple[float, int, int, int]]
    """Time, working replicas, target replicas and queued tasks, each second; empty without autoscaling."""


class QueueSimulation:
    """One run of a queue and its replicas. `arrivals` are in order of time."""

    def __init__(
        self,
        arrivals: Sequence[SimulatedTask],
        profile: ModelProfile,
        scaling: AutoscalingSettings,
        *,
        losses_per_hour: float = 0.0,
        seed: int = 0,
    ) -> None:
        """`scaling` with equal bounds means a fixed number of replicas, ready at the start.

        Each replica is lost `losses_per_hour` times on average, with the progress of its tasks, and is then replaced.
        """
        self._arrivals = arrivals
        self._profile = profile
        self._scaling = scaling
        self._random = random.Random(seed)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        cost = StepCost(profile.fixed_s, profile.per_megapixel_s / _TOKENS_PER_MEGAPIXEL, 0.0)
        self._costs = StepCosts(profile.max_batch, initial={"image": cost})
        self._queue = FairQueue()
        initial = scaling.min_replicas if scaling.initial_replicas is None else scaling.initial_replicas
        self._fixed = scaling.min_replicas == scaling.max_replicas
        self._losses_per_s = losses_per_hour / 3600
        self._replicas: list[_Replica] = []
        self._starting: list[bool] = []
        """For each replica that loads or loaded: whether it is still to be added."""
        self._decision = ScalingDecision(scaling.model_dump(exclude=_NO_DECISION, exclude_none=True), initial)
        self._forecast = Forecast()
        self._accepted = self._ended = 0
        self._accepted_work = self._unfinished_work = 0.0
        self._done_work = self._done_device_s = self._device_s = 0.0
        self._busy_s = self._replica_s = 0.0
        self._timeline: list[tuple[float, int, int, int]] = []
        for _ in range(initial):
            self._add_replica()

    def run(self, duration_s: float = 0.0) -> SimulationResult:
        """Runs until the last result, and for at least `duration_s`."""
        for task in self._arrivals:
            self._at(task.at, lambda task=task: self._arrive(task))
        if not self._fixed:
            self._at(0.0, self._scale)
        while self._events and (self._ended < len(self._arrivals) or self._now < duration_s):
            self._now, _, act = heapq.heappop(self._events)
            act()
        self._now = max(self._now, duration_s)
        return SimulationResult(
            [task.finished_at - task.at for task in self._arrivals if task.finished_at is not None],
            [task.started_at - task.at for task in self._arrivals if task.started_at is not None],
            self._now,
            self._scaling.min_replicas * self._now if self._fixed else self._replica_s,
            self._busy_s,
            self._timeline,
        )

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def _arrive(self, task: SimulatedTask) -> None:
        self._accepted += 1
        self._accepted_work += task.work
        self._unfinished_work += task.work
        self._queue.push(task)
        self._dispatch()

    def _dispatch(self) -> None:
        """Sends each task to the less loaded of two random replicas, as Ray Serve's router does."""
        while self._queue:
            candidates = self._random.choices(self._replicas, k=2) if self._replicas else []
            free = list(filter(self._is_free, candidates)) or list(filter(self._is_free, self._replicas))
            if not free:
                return
            replica = min(free, key=lambda one: one.held)
            task = self._queue.pop()
            replica.tasks.add(task)
            task.started_at = self._now
            replica.encoder_free = max(replica.encoder_free, self._now) + self._profile.encode_s
            self._at(replica.encoder_free, lambda task=task, replica=replica: self._join(task, replica))

    def _is_free(self, replica: _Replica) -> bool:
        return replica.held < self._profile.max_running and not replica.leaving

    def _join(self, task: SimulatedTask, replica: _Replica) -> None:
        if replica.lost:
            return
        replica.stepping.append(task)
        if not replica.in_step:
            self._step(replica)

    def _step(self, replica: _Replica) -> None:
        batch = select_batch(replica.stepping, self._now, self._costs)
        replica.in_step = bool(batch)
        if batch:
            step_s = self._profile.step_s(sum(task.megapixels for task in batch))
            self._busy_s += step_s
            self._at(self._now + step_s, lambda: self._end_step(replica, batch, step_s))

    def _end_step(self, replica: _Replica, batch: Sequence[SimulatedTask], step_s: float) -> None:
        if replica.lost:
            return
        for task in batch:
            task.done_steps += 1
            task.device_s += step_s / len(batch)
            if task.done_steps == task.total_steps:
                replica.stepping.remove(task)
                replica.finisher_free = max(replica.finisher_free, self._now) + self._profile.finish_s
                self._at(replica.finisher_free, lambda task=task: self._finish(task, replica))
        self._step(replica)

    def _finish(self, task: SimulatedTask, replica: _Replica) -> None:
        if replica.lost:
            return
        task.finished_at = self._now + self._profile.overhead_s
        self._ended += 1
        self._unfinished_work -= task.work
        device_s = task.device_s + self._profile.encode_s + self._profile.finish_s
        self._device_s += device_s
        self._done_work = _DECAY * self._done_work + task.work
        self._done_device_s = _DECAY * self._done_device_s + device_s
        replica.tasks.remove(task)
        if replica.leaving and not replica.held:
            self._replicas.remove(replica)
        self._dispatch()

    def _add_replica(self) -> None:
        self._replicas.append(replica := _Replica())
        if self._losses_per_s:
            self._at(self._now + self._random.expovariate(self._losses_per_s), lambda: self._lose(replica))

    def _lose(self, replica: _Replica) -> None:
        if replica not in self._replicas:
            return
        replica.lost = True
        self._replicas.remove(replica)
        for task in sorted(replica.tasks, key=lambda each: each.at):
            task.done_steps, task.device_s = 0, 0.0
            self._queue.push(task)
        if self._fixed:
            self._at(self._now + self._profile.load_s, self._replace)
        self._dispatch()

    def _replace(self) -> None:
        self._add_replica()
        self._dispatch()

    # Autoscaling

    def _scale(self) -> None:
        """Does the work of Serve's controller, once a second."""
        ongoing = sum(replica.held for replica in self._replicas)
        working = [replica for replica in self._replicas if not replica.leaving]
        if self._scaling.target_wait_s is None:
            wanted = ongoing / self._scaling.target_ongoing_requests
            if not working and self._queue:
                wanted = 1.0
        else:
            self._forecast.update(self._load(ongoing), self._now)
            wanted = self._forecast.replicas(self._scaling.target_wait_s, self._scaling.target_ongoing_requests)
        target = self._decision.update(wanted, len(working), self._now)
        self._start(target - len(working) - sum(self._starting))
        self._stop(len(working) + sum(self._starting) - target)
        self._replica_s += _CONTROL_PERIOD_S * (len(self._replicas) + sum(self._starting))
        self._timeline.append((self._now, len(working), target, len(self._queue)))
        self._at(self._now + _CONTROL_PERIOD_S, self._scale)

    def _load(self, ongoing: int) -> Load:
        unit_s = self._done_device_s / self._done_work if self._done_work else None
        tasks = len(self._queue) + ongoing
        return Load(
            tasks,
            self._unfinished_work,
            self._accepted_work,
            self._accepted,
            unit_s,
            self._device_s,
            self._busy_s,
            self._profile.load_s,
        )

    def _start(self, count: int) -> None:
        for _ in range(count):
            number = len(self._starting)
            self._starting.append(True)
            self._at(self._now + self._profile.load_s, lambda number=number: self._add(number))

    def _add(self, number: int) -> None:
        if self._starting[number]:
            self._starting[number] = False
            self._replace()

    def _stop(self, count: int) -> None:
        """Stops loading replicas first, then the least loaded ones, which finish their tasks."""
        for number in range(len(self._starting) - 1, -1, -1):
            if count > 0 and self._starting[number]:
                self._starting[number] = False
                count -= 1
        working = sorted((one for one in self._replicas if not one.leaving), key=lambda one: one.held)
        for replica in working[: max(count, 0)]:
            replica.leaving = True
            if not replica.held:
                self._replicas.remove(replica)
