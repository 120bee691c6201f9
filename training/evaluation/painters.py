"""Who answers the questions: a bundled model behind the step engine, or a drawing hand that is always right."""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from deployments import checkpoints
from deployments.backends.diffusion import DiffusionBackend
from deployments.contract.events import Done, Event, Failed, Interrupted
from deployments.contract.job import Adapter, GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from training.evaluation.edges import THRESHOLDS
from training.evaluation.pictures import answer, drawn, drawn_mask, opened, png
from training.evaluation.question import Question
from training.evaluation.settings import Service, service_of
from training.trainer import outlined
from training.worlds.pictures.judge import Pixels

FIRST_SEED: Final = 5_000_000
"""Of pictures. Far from the seeds that anything is trained or tried with."""


class Painter(Protocol):
    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Pixels | str]:
        """A picture for every question, in order; where there is none, the reason."""
        ...


class IdealPainter:
    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Pixels | str]:
        return map(answer, questions)


class ModelPainter:
    """A bundled checkpoint, set up as `configs/local.yaml` has it, and called through the engine and a store."""

    def __init__(self, checkpoint: str) -> None:
        self._service = service_of(checkpoint)
        self._folder = Path(tempfile.mkdtemp(prefix="evaluation-"))
        self._store = ObjectStore(self._folder.as_uri())
        self._numbers = itertools.count()
        family = checkpoints.load(
            f"bundled/{checkpoint}",
            device="cpu",
            dtype="float32",
            render_side=self._service.render_side,
            enlarge=self._service.enlarge,
        )
        self._engine = Engine(
            DiffusionBackend(checkpoints.for_pictures(family), self._store),
            max_running=self._service.max_running,
            max_batch=self._service.max_batch,
        )

    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Pixels | str]:
        for first in range(0, len(questions), self._service.max_running):
            few = questions[first : first + self._service.max_running]
            ends: list[Event | None] = [None] * len(few)
            for index, question in enumerate(few):
                job = self._job(question, first_seed + first + index)
                self._engine.submit(job, functools.partial(_note, ends, index))
            self._engine.run_until_idle()
            yield from (self._result(end) for end in ends)

    def close(self) -> None:
        self._engine.stop()
        shutil.rmtree(self._folder)

    def _job(self, question: Question, seed: int) -> GenerationJob:
        """As the service makes it of a request, with the input pictures in the store."""
        number = str(next(self._numbers))
        size = question.width, question.height
        service: Service = self._service
        references = tuple(
            self._put(f"{number}/{index}", png(drawn(scene, question.grid, size)))
            for index, scene in enumerate(question.references)
        )
        mask = None if question.mask is None else self._put(f"{number}/mask", png(drawn_mask(question.mask, size)))
        control = None
        if question.control is not None:
            control = self._put(f"{number}/control", png(drawn(question.control, question.grid, size)))
        return GenerationJob(
            id=number,
            attempt=0,
            prompt=question.prompt,
            width=question.width,
            height=question.height,
            steps=service.steps,
            seed=seed,
            output_format="png",
            output_prefix=f"results/{number}",
            references=references,
            guidance=service.guidance,
            guidance_interval=service.guidance_interval,
            mask=mask,
            control=control,
            canny=None if control is None else THRESHOLDS,
            adapter=None if question.outlined is None else self._outlined(question.outlined),
        )

    def _outlined(self, strength: float) -> Adapter:
        key = "adapters/outlined.safetensors"
        self._store.put_blocking(key, outlined.FILE.read_bytes(), "application/octet-stream")
        return Adapter("outlined", key, strength)

    def _put(self, name: str, data: bytes) -> str:
        key = f"inputs/{name}.png"
        self._store.put_blocking(key, data, "image/png")
        return key

    def _result(self, end: Event | None) -> Pixels | str:
        match end:
            case Done(output):
                return opened(self._store.get_blocking(output.key))
            case Failed(reason) | Interrupted(reason, _):
                return reason
            case _:
                return "the engine dropped it"


def _note(ends: list[Event | None], index: int, event: Event) -> None:
    if isinstance(event, Done | Failed | Interrupted):
        ends[index] = event
