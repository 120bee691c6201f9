"""Who draws pictures: a bundled model behind the step engine, or a drawing hand that is always right."""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray

from deployments import checkpoints
from deployments.backends.diffusion import DiffusionBackend
from deployments.contract.events import Done, Event, Failed, Interrupted
from deployments.contract.job import Adapter, GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from serve_app.config.models import TrueGuidanceSettings
from serve_app.requests.canny import CannyRequest
from serve_app.requests.fill import FillRequest
from serve_app.requests.image_klein import MAX_STEPS
from serve_app.requests.pro import ProRequest
from training.build.bundle import OUTLINED
from training.evaluation.edges import THRESHOLDS
from training.evaluation.pictures import Question, ideal
from training.worlds.pictures.drawing import Pixels, drawn, drawn_mask

_CONFIGS: Final = Path(__file__).parents[2] / "configs"


def _defaults(form: Any, *names: str) -> dict[str, Any]:
    return {name: form.model_fields[name].default for name in names}


REQUESTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "flux3": {"steps": MAX_STEPS},
    "flux2klein": {},
    "flux": _defaults(ProRequest, "steps", "guidance", "interval"),
    "kontext": {},
    "fill": _defaults(FillRequest, "steps", "guidance"),
    "canny": _defaults(CannyRequest, "steps", "guidance"),
}
"""What a request to a checkpoint's endpoint has by default, where it isn't the model's own."""


class IdealPainter:
    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Pixels | str]:
        return map(ideal, questions)


class ModelPainter:
    """A bundled checkpoint, set up as `configs/local.yaml` has it, and called through the engine and a store."""

    def __init__(self, checkpoint: str) -> None:
        self._model = model_of(checkpoint)
        guidance = self._model.get("true_guidance")
        self._request = {"guidance": self._model["guidance"], **REQUESTS[checkpoint]}
        self._folder = Path(tempfile.mkdtemp(prefix="evaluation-"))
        self._store = ObjectStore(self._folder.as_uri())
        self._numbers = itertools.count()
        family = checkpoints.load(
            f"bundled/{checkpoint}",
            device="cpu",
            dtype="float32",
            render_side=self._model.get("render_side"),
            enlarge=self._model.get("enlarge", "smooth"),
            true_guidance=TrueGuidanceSettings(**guidance).spec() if guidance else None,
        ).family
        self._together = self._model.get("max_running", 8)
        self._engine = Engine(
            DiffusionBackend(checkpoints.for_pictures(family), self._store),
            max_running=self._together,
            max_batch=self._model.get("max_batch", 8),
        )

    def paint(self, questions: Sequence[Question], first_seed: int) -> Iterator[Pixels | str]:
        for first in range(0, len(questions), self._together):
            few = questions[first : first + self._together]
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
        adapter = control = mask = None
        if question.outlined is not None:
            adapter = Adapter("outlined", self._put("outlined", OUTLINED.read_bytes()), question.outlined)
        if question.traced:
            control = self._put(f"{number}/control", _png(drawn(question.target, question.grid, question.size)))
        if question.mask is not None:
            mask = self._put(f"{number}/mask", _png(drawn_mask(question.mask, question.size)))
        return GenerationJob(
            id=number,
            attempt=0,
            prompt=question.prompt,
            width=question.size[0],
            height=question.size[1],
            steps=self._request.get("steps") or self._model["steps"],
            seed=seed,
            output_format="png",
            output_prefix=f"results/{number}",
            references=tuple(
                self._put(f"{number}/{index}", _png(drawn(scene, question.grid, question.size)))
                for index, scene in enumerate(question.references)
            ),
            guidance=self._request["guidance"],
            guidance_interval=self._request.get("interval"),
            mask=mask,
            control=control,
            canny=None if control is None else THRESHOLDS,
            adapter=adapter,
        )

    def _put(self, name: str, data: bytes) -> str:
        key = f"inputs/{name}"
        self._store.put_blocking(key, data, "application/octet-stream")
        return key

    def _result(self, end: Event | None) -> Pixels | str:
        match end:
            case Done(output):
                data = np.frombuffer(self._store.get_blocking(output.key), np.uint8)
                return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR_RGB), np.uint8)
            case Failed(reason) | Interrupted(reason, _):
                return reason
            case _:
                return "the engine dropped it"


def model_of(checkpoint: str) -> dict[str, Any]:
    """What `configs/local.yaml` says of the model that runs it, and the guidance that the catalog sets."""
    files = (_CONFIGS / "local.yaml", _CONFIGS / "catalog.yaml")
    local, catalog = (yaml.safe_load(file.read_text())["models"] for file in files)
    [name, *_] = (name for name, model in local.items() if model.get("checkpoint") == f"bundled/{checkpoint}")
    return {"guidance": catalog[name].get("guidance"), **local[name]}


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Of RGB (H, W, 3) or grey (H, W)."""
    order = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".png", order)[1].tobytes()


def _note(ends: list[Event | None], index: int, event: Event) -> None:
    if isinstance(event, Done | Failed | Interrupted):
        ends[index] = event
