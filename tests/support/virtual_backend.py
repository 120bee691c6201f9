"""A backend on a virtual clock. Its calls take virtual seconds and can be made to fail."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from deployments.backend import JobError, OutOfMemory
from deployments.contract.counts import hits
from deployments.contract.events import Event, Preview
from deployments.contract.job import GenerationJob, Output


class VirtualClock:
    """A clock that passes only when a call adds to `now`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class VirtualState:
    job: GenerationJob
    key: Hashable
    total_steps: int
    done_steps: int = 0
    tokens: int = 100
    alike: int | None = None
    """Number of first steps that are alike; None means all."""

    @property
    def steps_alike(self) -> int:
        return (self.total_steps if self.alike is None else self.alike) - self.done_steps


def by_size(job: GenerationJob) -> Hashable:
    return job.request.width, job.request.height


def paying_step(key: Hashable, batch: int) -> float:
    """Returns seconds of a step; a batch of 8 takes 2.75 times as long as one image."""
    return 0.009 + 0.003 * batch


@dataclass
class VirtualBackend:
    """A backend whose calls raise the exceptions in `errors`, by the call's name and the job's id.

    Calls are `fetch`, `encode`, `step`, `preview`, `finish` and `store`, which `finish` returns.
    """

    clock: VirtualClock = field(default_factory=VirtualClock)
    key: Callable[[GenerationJob], Hashable] = by_size
    step_seconds: Callable[[Hashable, int], float] = paying_step
    encode_seconds: Callable[[int], float] = lambda batch: 0.004 + 0.001 * batch
    finish_seconds: float = 0.0
    tokens: int = 100
    steps_alike: int | None = None
    """Number of first steps that are alike in each image; None means all."""
    errors: dict[tuple[str, str], Exception] = field(default_factory=dict)
    max_batch: dict[str, int] = field(default_factory=dict)
    """Largest batch before a call runs out of memory, by the call's name."""
    before: Callable[[str, list[str]], None] = lambda call, names: None
    """Hook at the start of each call; gets its name and the ids of its jobs."""
    calls: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def setup(self) -> Mapping[str, str]:
        return {"family": "virtual"}

    def counts(self) -> Mapping[str, float]:
        return {hits("prompts"): float(len(self.batches("encode")))}

    def fetch(self, job: GenerationJob) -> GenerationJob:
        self._begin("fetch", [job])
        return job

    def encode(self, fetched: Sequence[GenerationJob]) -> list[VirtualState | JobError]:
        self._begin("encode", fetched, refused=JobError)
        self.clock.now += self.encode_seconds(len(fetched))
        return [self._encode_job(job) for job in fetched]

    def step(self, states: Sequence[VirtualState]) -> None:
        assert len({state.key for state in states}) == 1
        self._begin("step", [state.job for state in states])
        self.clock.now += self.step_seconds(states[0].key, len(states))
        for state in states:
            assert state.done_steps < state.total_steps
            state.done_steps += 1

    def finish(self, state: VirtualState) -> Callable[[], Output]:
        assert state.done_steps == state.total_steps
        self._begin("finish", [state.job])
        self.clock.now += self.finish_seconds
        return partial(self._store, state.job)

    def preview(self, state: VirtualState) -> Callable[[], Preview]:
        self._begin("preview", [state.job])
        preview = Preview(f"{state.job.output_prefix}/preview", state.done_steps, state.total_steps)
        return lambda: preview

    def _store(self, job: GenerationJob) -> Output:
        self._begin("store", [job])
        return Output(f"{job.output_prefix}/image.png", "image/png", job.request.width, job.request.height, 1)

    def batches(self, call: str) -> list[list[str]]:
        """Returns the jobs' ids of every `call`, in order."""
        return [names for name, names in self.calls if name == call]

    def _encode_job(self, job: GenerationJob) -> VirtualState | JobError:
        error = self.errors.get(("encode", job.id))
        state = VirtualState(job, self.key(job), job.request.steps, tokens=self.tokens, alike=self.steps_alike)
        return error if isinstance(error, JobError) else state

    def _begin(self, call: str, jobs: Sequence[GenerationJob], refused: type[Exception] | None = None) -> None:
        names = [job.id for job in jobs]
        self.calls.append((call, names))
        self.before(call, names)
        if len(names) > self.max_batch.get(call, len(names)):
            raise OutOfMemory
        for name in names:
            error = self.errors.get((call, name))
            if error is not None and not (refused and isinstance(error, refused)):
                raise error


class Listener:
    """Collects the events of one job."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]
