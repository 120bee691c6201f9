"""The simulator of a model's queue and replicas on a virtual clock.

What decides is the code that runs: the scheduler of the step engine, the autoscaling policy, Ray Serve's delays. What
takes time is the model's profile. The queue is fair as `tasks/fair.lua`, which a test compares it with.
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

_PER_MEGAPIXEL: Final = 1000
"""Tokens of the scheduler, which goes by whole ones."""
_DECIDES_EVERY_S: Final = 1.0
_NO_DECISION: Final = {"target_wait_s", "metrics_interval_s", "look_back_period_s", "aggregation_function"}
"""Settings of the policy, and of what Ray measures by."""
_FADE: Final = 0.98
"""Of what earlier tasks say about the cost of work, as in `tasks/complete.lua`."""


@dataclass(slots=True, eq=False)
class SimulatedTask:
    """One arrival: `at` in seconds, `megapixels` per step. Also its state in a replica."""

    at: float
    megapixels: float
    total_steps: int
    tenant: str = ""
    done_steps: int = 0
    started: float | None = None
    ended: float | None = None
    device_s: float = 0.0

    @property
    def submitted_at(self) -> float:
        """To its replica."""
        return self.at if self.started is None else self.started

    @property
    def work(self) -> float:
        return max(self.megapixels * self.total_steps, 0.001)

    @property
    def key(self) -> Hashable:
        return "image"

    @property
    def tokens(self) -> int:
        return max(1, round(self.megapixels * _PER_MEGAPIXEL))

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
        if not self._heap:  # nobody waits, so nobody's past matters any more
            self._clock = max(self._ends.values())
            self._ends.clear()
        return task


@dataclass(slots=True, eq=False)
class _Replica:
    tasks: set[SimulatedTask] = field(default_factory=set)
    """All that it has."""
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
class Outcome:
    """Of a simulation. Times in seconds."""

    results: Sequence[float]
    """From each arrival to its result."""
    waits: Sequence[float]
    """From each arrival to its admission by a replica."""
    elapsed_s: float
    replica_s: float
    """Of all replicas together, loading and leaving ones too: what is paid for."""
    busy_s: float
    """In which a replica took a step."""
    timeline: Sequence[tuple[float, int, int, int]]
    """Every second of a simulation with autoscaling: time, replicas that work, replicas wanted, tasks that wait."""


class Simulation:
    """One run. `arrivals` in the order of time."""

    def __init__(
        self,
        arrivals: Sequence[SimulatedTask],
        profile: ModelProfile,
        scaling: AutoscalingSettings,
        *,
        losses_per_hour: float = 0.0,
        seed: int = 0,
    ) -> None:
        """`scaling` with equal bounds is a fixed number of replicas, there from the beginning. Each replica is
        lost, with what it has begun, so many times an hour on average, and another one loads in its place."""
        self._arrivals = arrivals
        self._profile = profile
        self._scaling = scaling
        self._random = random.Random(seed)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        cost = StepCost(profile.fixed_s, profile.per_megapixel_s / _PER_MEGAPIXEL, 0.0)
        self._costs = StepCosts(profile.max_batch, initial={"image": cost})
        self._queue = FairQueue()
        initial = scaling.min_replicas if scaling.initial_replicas is None else scaling.initial_replicas
        self._fixed = scaling.min_replicas == scaling.max_replicas
        self._losses_per_s = losses_per_hour / 3600
        self._replicas: list[_Replica] = []
        self._starting: list[bool] = []
        """Of replicas that load; whether each is still wanted."""
        self._decision = ScalingDecision(scaling.model_dump(exclude=_NO_DECISION, exclude_none=True), initial)
        self._forecast = Forecast()
        self._accepted = self._ended = 0
        self._accepted_work = self._unfinished_work = 0.0
        self._done_work = self._done_device_s = self._device_s = 0.0
        self._busy_s = self._replica_s = 0.0
        self._timeline: list[tuple[float, int, int, int]] = []
        for _ in range(initial):
            self._add_replica()

    def run(self, duration_s: float = 0.0) -> Outcome:
        """To the last result, and for `duration_s` at least."""
        for task in self._arrivals:
            self._at(task.at, lambda task=task: self._arrive(task))
        if not self._fixed:
            self._at(0.0, self._scale)
        while self._events and (self._ended < len(self._arrivals) or self._now < duration_s):
            self._now, _, act = heapq.heappop(self._events)
            act()
        self._now = max(self._now, duration_s)
        return Outcome(
            [task.ended - task.at for task in self._arrivals if task.ended is not None],
            [task.started - task.at for task in self._arrivals if task.started is not None],
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
        """Tasks go to replicas with room, of two chosen at random to the one with less, as Ray Serve's router does."""
        while self._queue:
            two = self._random.choices(self._replicas, k=2) if self._replicas else []
            free = [one for one in two if self._has_room(one)] or list(filter(self._has_room, self._replicas))
            if not free:
                return
            replica = min(free, key=lambda one: one.held)
            task = self._queue.pop()
            replica.tasks.add(task)
            task.started = self._now
            replica.encoder_free = max(replica.encoder_free, self._now) + self._profile.encode_s
            self._at(replica.encoder_free, lambda task=task, replica=replica: self._join(task, replica))

    def _has_room(self, replica: _Replica) -> bool:
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
            step_s = self._profile.seconds(sum(task.megapixels for task in batch))
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
        task.ended = self._now + self._profile.overhead_s
        self._ended += 1
        self._unfinished_work -= task.work
        device_s = task.device_s + self._profile.encode_s + self._profile.finish_s
        self._device_s += device_s
        self._done_work = _FADE * self._done_work + task.work
        self._done_device_s = _FADE * self._done_device_s + device_s
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
        """What Serve's controller does, once a second."""
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
        self._replica_s += _DECIDES_EVERY_S * (len(self._replicas) + sum(self._starting))
        self._timeline.append((self._now, len(working), target, len(self._queue)))
        self._at(self._now + _DECIDES_EVERY_S, self._scale)

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
        """Those that still load first, then those with least to do, which end what they have."""
        for number in range(len(self._starting) - 1, -1, -1):
            if count > 0 and self._starting[number]:
                self._starting[number] = False
                count -= 1
        working = sorted((one for one in self._replicas if not one.leaving), key=lambda one: one.held)
        for replica in working[: max(count, 0)]:
            replica.leaving = True
            if not replica.held:
                self._replicas.remove(replica)
