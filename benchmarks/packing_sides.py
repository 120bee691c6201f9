"""Three ways to make the same images with the same networks, in this process: one at a time, in static batches of
compatible requests, and by the step engine."""

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
"""Images in a static batch at most: on a CPU larger ones bring nothing."""
_SHAPES: Final = ((64, 64), (96, 64), (64, 128), (128, 128), (192, 128), (256, 256))
_STEPS: Final = (4, 8, 16)
_PROMPTS: Final = ("a small red star on a dark blue background", "two yellow circles", "a green square on white")
_REFERENCES: Final = tuple(f"inputs/{number}" for number in range(4))


@dataclass(frozen=True, slots=True)
class Mix:
    shapes: Sequence[tuple[int, int]] = _SHAPES
    references: bool = False
    """Half of the requests then have one or two, of four images."""

    def jobs(self, count: int, seed: int, form: ImageFormat = "jpeg") -> list[GenerationJob]:
        chance = random.Random(seed)
        return [self._job(f"{seed}-{number}", number, chance, form) for number in range(count)]

    def _job(self, name: str, number: int, chance: random.Random, form: ImageFormat) -> GenerationJob:
        width, height = chance.choice(self.shapes)
        steps, count = chance.choice(_STEPS), chance.choice((1, 2))
        references = tuple(chance.sample(_REFERENCES, count)) if self.references and number % 2 else ()
        return GenerationJob(
            id=name,
            attempt=1,
            request=ResolvedRequest(
                prompt=f"{chance.choice(_PROMPTS)} {name}",
                width=width,
                height=height,
                steps=steps,
                seed=number,
                output_format=form,
            ),
            output_prefix=f"packing/{name}",
            inputs=InputKeys(references=references),
        )


class Moments:
    """Seconds since the beginning. Time in which there is nothing to do may be skipped: who makes nothing makes the
    same of an hour of it as of a moment."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._began

    def skip_to(self, moment: float) -> None:
        """No step back, where that is over."""
        self._began -= max(0.0, moment - self.now())


class Side(Protocol):
    def run(self, jobs: Sequence[GenerationJob], arrivals: Sequence[float]) -> list[float]:
        """Makes all of them, each of which comes so many seconds after the beginning; rising. When each was done, in
        seconds after the beginning. Time with nothing to do is counted, and skipped."""
        ...

    def file(self, job: GenerationJob) -> bytes:
        """What was made of it."""
        ...


class Loop:
    """What a script does: takes what waits, makes it to its end, and looks again."""

    def __init__(
        self, store: ObjectStore, draw: Callable[[Sequence[PreparedRequest]], Iterable[bytes]], at_once: int
    ) -> None:
        self._files: dict[str, bytes] = {}
        self._store = store
        self._draw = draw
        self._at_once = at_once

    def run(self, jobs: Sequence[GenerationJob], arrivals: Sequence[float]) -> list[float]:
        done, waiting, coming = [0.0] * len(jobs), deque[int](), deque(range(len(jobs)))
        moments = Moments()
        while waiting or coming:
            if not waiting:
                moments.skip_to(arrivals[coming[0]])
            while coming and arrivals[coming[0]] <= moments.now():
                waiting.append(coming.popleft())
            alike = [number for number in waiting if shape_key(jobs[number]) == shape_key(jobs[waiting[0]])]
            batch = alike[: self._at_once]
            files = self._draw([prepare(jobs[number], self._store) for number in batch])
            for number, file in zip(batch, files, strict=True):
                self._files[jobs[number].id] = file
                waiting.remove(number)
                done[number] = moments.now()
        return done

    def file(self, job: GenerationJob) -> bytes:
        return self._files[job.id]


class Stepping:
    """The step engine, which is given a job when it comes."""

    def __init__(self, family: Family, store: ObjectStore, *, running: int, batch: int) -> None:
        self.engine = Engine(DiffusionBackend(family, store), max_running=running, max_batch=batch)
        self.engine.start()
        self._store = store
        self._keys: dict[str, str] = {}

    def run(self, jobs: Sequence[GenerationJob], arrivals: Sequence[float]) -> list[float]:
        done, semaphore, failures = [0.0] * len(jobs), threading.Semaphore(0), list[Event]()
        moments = Moments()

        def on_event(number: int, event: Event) -> None:
            if isinstance(event, LAST):
                done[number] = moments.now()
                if isinstance(event, Done):
                    self._keys[jobs[number].id] = event.output.key
                else:
                    failures.append(event)
                semaphore.release()

        in_work = 0
        for number, job in enumerate(jobs):
            while in_work and (wait := arrivals[number] - moments.now()) > 0:
                in_work -= semaphore.acquire(timeout=wait)
            moments.skip_to(arrivals[number])
            self.engine.submit(job, lambda event, number=number: on_event(number, event))
            in_work += 1
        for _ in range(in_work):
            semaphore.acquire()
        if failures:
            raise RuntimeError(f"the engine gave {failures[0]}")
        return done

    def file(self, job: GenerationJob) -> bytes:
        return self._store.get_blocking(self._keys[job.id])


def one_at_a_time(family: Family, store: ObjectStore) -> Loop:
    """As the stock pipeline does, bit by bit."""

    def draw(requests: Sequence[PreparedRequest]) -> Iterator[bytes]:
        [state] = encode(family, requests)
        while state.done_steps < state.total_steps:
            step(family, [state])
        yield _file(family, state)

    return Loop(store, draw, 1)


def static_batches(family: Flux3, store: ObjectStore) -> Loop:
    """Those of equal shape and steps, with references of equal shapes, from beginning to end together."""

    def draw(requests: Sequence[PreparedRequest]) -> Iterator[bytes]:
        states = encode(family, requests)
        for moment in range(states[0].total_steps):
            _step_alike(family, states, moment)
        for state in states:  # each is given away as soon as it is there
            yield _file(family, state)

    return Loop(store, draw, BATCH)


def _file(family: Family, state: State) -> bytes:
    assert state.job.request.output_format != "mp4", "an image's job"
    data, _, _ = encode_image(family.finish(state), state.job.request.output_format)
    return data


@torch.inference_mode()
def _step_alike(family: Flux3, states: Sequence[State], moment: int) -> None:
    """One step of images that agree in all shapes, by the stock forward of a batch."""
    first, dtype = states[0], family.transformer.dtype
    count = len(states)
    references = "references" in first.per
    velocities = family.transformer(
        hidden_states=torch.cat([state.x for state in states]).to(dtype),
        encoder_hidden_states=torch.cat([state.per["text"] for state in states]),
        timestep=first.t[moment].expand(count).to(dtype),
        target_timestep=first.t[moment + 1].expand(count).to(dtype),
        img_ids=first.ids["image_ids"],
        txt_ids=first.ids["text_ids"],
        image_cond_hidden_states=torch.cat([state.per["references"] for state in states]) if references else None,
        image_cond_ids=first.ids.get("reference_ids"),
        return_dict=False,
    )[0].float()
    for state, v in zip(states, velocities.split(1), strict=True):
        state.x, state.i = state.x + first.dt[moment] * v, moment + 1


def encode(family: Family, requests: Sequence[PreparedRequest]) -> list[State]:
    states = [state for state in family.encode(requests) if isinstance(state, State)]
    if len(states) < len(requests):
        raise RuntimeError("a job was refused")
    return states


def prepare(job: GenerationJob, store: ObjectStore) -> PreparedRequest:
    return PreparedRequest(job, tuple(store.get_blocking(key) for key in job.inputs.references))


def with_inputs(store: ObjectStore) -> None:
    """Puts what jobs of a `Mix` name into the store."""
    for number, key in enumerate(_REFERENCES):
        pixels = np.random.default_rng(number).integers(0, 256, (64, 64 + 32 * (number % 2), 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        store.put_blocking(key, file.getvalue(), "image/png")


def solo_latencies(side: Side, jobs: Sequence[GenerationJob]) -> dict[Any, float]:
    """Seconds of one job of each shape, by its shape, when nobody else is there."""
    firsts = {shape_key(job): replace(job, id=f"alone-{job.id}") for job in jobs}

    def measure() -> dict[Any, float]:
        return {shape: side.run([job], [0.0])[0] for shape, job in firsts.items()}

    measure()  # the first of a shape warms up
    return measure()


def shape_key(job: GenerationJob) -> Any:
    """What jobs must have in common to be batched by a stock forward."""
    return (
        job.request.width,
        job.request.height,
        job.request.steps,
        tuple(int(key[-1]) % 2 for key in job.inputs.references),
    )
