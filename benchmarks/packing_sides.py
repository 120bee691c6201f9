"""Sides of the packing benchmark: three ways to make the same images with the same networks in this process."""

from __future__ import annotations

import io
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import torch
from PIL import Image

from deployments.backends.images import DiffusionBackend
from deployments.contract.events import LAST, Done, Event
from deployments.contract.job import GenerationJob, InputKeys
from deployments.contract.objects import ObjectStore
from deployments.contract.request import ImageFormat, ResolvedRequest
from deployments.engine.loop import Engine
from deployments.families.conditioning import PreparedRequest
from deployments.families.family import Family
from deployments.families.flux3 import Flux3
from deployments.families.state import State
from deployments.families.step import step
from deployments.outputs import encode_image

BATCH: Final = 8
"""Maximum of images in a static batch; on a CPU larger ones gain nothing."""
_SHAPES: Final = ((64, 64), (96, 64), (64, 128), (128, 128), (192, 128), (256, 256))
_STEPS: Final = (4, 8, 16)
_PROMPTS: Final = ("a small red star on a dark blue background", "two yellow circles", "a green square on white")
_REFERENCES: Final = tuple(f"inputs/{number}" for number in range(4))


@dataclass(frozen=True, slots=True)
class PackingMix:
    shapes: Sequence[tuple[int, int]] = _SHAPES
    references: bool = False
    """True if every second request has one or two of four reference images."""

    def jobs(self, count: int, seed: int, output_format: ImageFormat = "jpeg") -> list[GenerationJob]:
        rng = random.Random(seed)
        return [self._job(f"{seed}-{number}", number, rng, output_format) for number in range(count)]

    def _job(self, name: str, number: int, rng: random.Random, output_format: ImageFormat) -> GenerationJob:
        width, height = rng.choice(self.shapes)
        steps, count = rng.choice(_STEPS), rng.choice((1, 2))
        references = tuple(rng.sample(_REFERENCES, count)) if self.references and number % 2 else ()
        return GenerationJob(
            id=name,
            attempt=1,
            request=ResolvedRequest(
                prompt=f"{rng.choice(_PROMPTS)} {name}",
                width=width,
                height=height,
                steps=steps,
                seed=number,
                output_format=output_format,
            ),
            output_prefix=f"packing/{name}",
            inputs=InputKeys(references=references),
        )


class SkippingClock:
    """Seconds since the start. Idle time can be skipped instead of waited for."""

    def __init__(self) -> None:
        self._started_at = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._started_at

    def skip_to(self, moment: float) -> None:
        """Advances the clock to `moment`, unless that is past."""
        self._started_at -= max(0.0, moment - self.now())


class PackingSide(Protocol):
    def run(self, jobs: Sequence[GenerationJob], arrivals: Sequence[float]) -> list[float]:
        """Makes all jobs. Returns when each was done.

        Times are seconds after the start; `arrivals` rise. Idle time counts but is skipped.
        """
        ...

    def file(self, job: GenerationJob) -> bytes:
        """Returns the file made for a job."""
        ...


class BatchLoop:
    """Loop of a script: takes waiting jobs of one shape, makes them to the end, and repeats."""

    def __init__(
        self, store: ObjectStore, draw: Callable[[Sequence[PreparedRequest]], Iterable[bytes]], max_batch: int
    ) -> None:
        self._files: dict[str, bytes] = {}
        self._store = store
        self._draw = draw
        self._max_batch = max_batch

    def run(self, jobs: Sequence[GenerationJob], arrivals: Sequence[float]) -> list[float]:
        done, waiting, future = [0.0] * len(jobs), deque[int](), deque(range(len(jobs)))
        clock = SkippingClock()
        while waiting or future:
            if not waiting:
                clock.skip_to(arrivals[future[0]])
            while future and arrivals[future[0]] <= clock.now():
                waiting.append(future.popleft())
            alike = [number for number in waiting if shape_key(jobs[number]) == shape_key(jobs[waiting[0]])]
            batch = alike[: self._max_batch]
            files = self._draw([prepare(jobs[number], self._store) for number in batch])
            for number, file in zip(batch, files, strict=True):
                self._files[jobs[number].id] = file
                waiting.remove(number)
                done[number] = clock.now()
        return done

    def file(self, job: GenerationJob) -> bytes:
        return self._files[job.id]


class EngineSide:
    """Step engine; it gets each job on arrival."""

    def __init__(self, family: Family, store: ObjectStore, *, running: int, batch: int) -> None:
        self.engine = Engine(DiffusionBackend(family, store), max_running=running, max_batch=batch)
        self.engine.start()
        self._store = store
        self._keys: dict[str, str] = {}

    def run(self, jobs: Sequence[GenerationJob], arrivals: Sequence[float]) -> list[float]:
        done, semaphore, failures = [0.0] * len(jobs), threading.Semaphore(0), list[Event]()
        clock = SkippingClock()

        def on_event(number: int, event: Event) -> None:
            if isinstance(event, LAST):
                done[number] = clock.now()
                if isinstance(event, Done):
                    self._keys[jobs[number].id] = event.output.key
                else:
                    failures.append(event)
                semaphore.release()

        running = 0
        for number, job in enumerate(jobs):
            while running and (wait := arrivals[number] - clock.now()) > 0:
                running -= semaphore.acquire(timeout=wait)
            clock.skip_to(arrivals[number])
            self.engine.submit(job, lambda event, number=number: on_event(number, event))
            running += 1
        for _ in range(running):
            semaphore.acquire()
        if failures:
            raise RuntimeError(f"a job ended with {failures[0]}")
        return done

    def file(self, job: GenerationJob) -> bytes:
        return self._store.get_blocking(self._keys[job.id])


def one_at_a_time(family: Family, store: ObjectStore) -> BatchLoop:
    """Returns a side that draws as the stock pipeline does, bit by bit."""

    def draw(requests: Sequence[PreparedRequest]) -> Iterator[bytes]:
        [state] = encode(family, requests)
        while state.done_steps < state.total_steps:
            step(family, [state])
        yield _file(family, state)

    return BatchLoop(store, draw, 1)


def static_batches(family: Flux3, store: ObjectStore) -> BatchLoop:
    """Returns a side that draws jobs of equal shape, steps and shapes of references together."""

    def draw(requests: Sequence[PreparedRequest]) -> Iterator[bytes]:
        states = encode(family, requests)
        for number in range(states[0].total_steps):
            _step_batch(family, states, number)
        for state in states:
            yield _file(family, state)

    return BatchLoop(store, draw, BATCH)


def _file(family: Family, state: State) -> bytes:
    image_format = state.job.request.output_format
    assert image_format not in ("mp4", "original"), "an image's job"
    data, _, _ = encode_image(family.finish(state), image_format)
    return data


@torch.inference_mode()
def _step_batch(family: Flux3, states: Sequence[State], number: int) -> None:
    """Steps images that agree in all shapes by the stock forward of a batch."""
    first, dtype = states[0], family.transformer.dtype
    count = len(states)
    references = "references" in first.per
    velocities = family.transformer(
        hidden_states=torch.cat([state.x for state in states]).to(dtype),
        encoder_hidden_states=torch.cat([state.per["text"] for state in states]),
        timestep=first.t[number].expand(count).to(dtype),
        target_timestep=first.t[number + 1].expand(count).to(dtype),
        img_ids=first.ids["image_ids"],
        txt_ids=first.ids["text_ids"],
        image_cond_hidden_states=torch.cat([state.per["references"] for state in states]) if references else None,
        image_cond_ids=first.ids.get("reference_ids"),
        return_dict=False,
    )[0].float()
    for state, v in zip(states, velocities.split(1), strict=True):
        state.x, state.i = state.x + first.dt[number] * v, number + 1


def encode(family: Family, requests: Sequence[PreparedRequest]) -> list[State]:
    states = [state for state in family.encode(requests) if isinstance(state, State)]
    if len(states) < len(requests):
        raise RuntimeError("a job was refused")
    return states


def prepare(job: GenerationJob, store: ObjectStore) -> PreparedRequest:
    return PreparedRequest(job, tuple(store.get_blocking(key) for key in job.inputs.references))


def put_references(store: ObjectStore) -> None:
    """Stores the reference images of a `PackingMix`."""
    for number, key in enumerate(_REFERENCES):
        pixels = np.random.default_rng(number).integers(0, 256, (64, 64 + 32 * (number % 2), 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        store.put_blocking(key, file.getvalue(), "image/png")


def solo_latencies(side: PackingSide, jobs: Sequence[GenerationJob]) -> dict[Any, float]:
    """Returns the seconds of a job of each shape, with nothing beside it."""
    firsts = {shape_key(job): replace(job, id=f"alone-{job.id}") for job in jobs}

    def measure() -> dict[Any, float]:
        return {shape: side.run([job], [0.0])[0] for shape, job in firsts.items()}

    measure()  # the first of a shape warms up
    return measure()


def shape_key(job: GenerationJob) -> Any:
    """Returns the properties that jobs of one static batch share."""
    return (
        job.request.width,
        job.request.height,
        job.request.steps,
        tuple(int(key[-1]) % 2 for key in job.inputs.references),
    )
