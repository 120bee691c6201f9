"""The simulated backend: takes time and makes flat images, to try replica counts, load and faults without a model.

The checkpoint `simulated/25ms` selects it: every step of a batch takes 25 ms, whatever the size and number of images.
Images have one colour that follows from the seed, videos are small and black. Engine, replica and object store are the
same as with a model.

`simulated/25ms?breaks=/path/of/a/file` also has a device that can break: the replica that finds the file at a step
deletes it, and its device is broken from then on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from deployments.backend import DeviceBroken, JobError
from deployments.backends.inputs import InputFetcher
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.outputs import Outputs
from deployments.video.writer import AUDIO_RATE, Audio, VideoWriter

_VIDEO: Final = (64, 36)
_CHECKPOINT: Final = re.compile(r"simulated/(?P<ms>\d+)ms(?:\?breaks=(?P<breaks>/.+))?")


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """The parameters in the name of a simulated checkpoint."""

    step_s: float
    breaks: Path | None = None
    """File that breaks the device of the replica that finds it."""

    @classmethod
    def from_checkpoint(cls, checkpoint: str) -> SimulatedModel | None:
        """Returns None for other checkpoints."""
        match = _CHECKPOINT.fullmatch(checkpoint)
        if match is None:
            return None
        return cls(int(match["ms"]) / 1000, Path(match["breaks"]) if match["breaks"] else None)


@dataclass
class SimulatedState:
    job: GenerationJob
    done_steps: int = 0

    @property
    def key(self) -> Hashable:
        return None

    @property
    def tokens(self) -> int:
        return 1

    @property
    def total_steps(self) -> int:
        return self.job.request.steps

    @property
    def steps_alike(self) -> int:
        return self.total_steps - self.done_steps


class SimulatedBackend:
    """Implements Backend[GenerationJob, SimulatedState]."""

    def __init__(self, model: SimulatedModel, store: ObjectStore) -> None:
        self._model = model
        self._fetcher = InputFetcher(store)
        self._outputs = Outputs(store)

    @property
    def setup(self) -> Mapping[str, str]:
        return {"family": "simulated"}

    def counts(self) -> Mapping[str, float]:
        return {}

    def fetch(self, job: GenerationJob) -> GenerationJob:
        self._fetcher.fetch_all(job.inputs.keys)
        return job

    def encode(self, fetched: Sequence[GenerationJob]) -> list[SimulatedState | JobError]:
        return [SimulatedState(job) for job in fetched]

    def step(self, states: Sequence[SimulatedState]) -> None:
        time.sleep(self._model.step_s)
        self._check_device()
        for state in states:
            state.done_steps += 1

    def finish(self, state: SimulatedState) -> Callable[[], Output]:
        job = state.job
        if job.request.video is not None:
            return partial(self._store_video, job, job.request.video)
        shades = np.random.default_rng(job.request.seed).integers(0, 256, 3, dtype=np.uint8)
        return partial(self._outputs.store_image, job, np.tile(shades, (job.request.height, job.request.width, 1)))

    def preview(self, state: SimulatedState) -> None: ...

    def _check_device(self) -> None:
        """Raises DeviceBroken in the one replica that deletes the file."""
        if self._model.breaks is not None:
            try:
                self._model.breaks.unlink()
            except FileNotFoundError:
                return
            raise DeviceBroken("broken by a file")

    def _store_video(self, job: GenerationJob, video: VideoParams) -> Output:
        with TemporaryDirectory(prefix="video-") as folder:
            file = Path(folder) / "video.mp4"
            audio = Audio(np.zeros((2, 0), np.float32), AUDIO_RATE) if video.audio else None
            writer = VideoWriter(file, rendered=(16, 16), size=_VIDEO, frames=video.frames, audio=audio, threads=1)
            for _ in range(video.frames):
                writer.write(np.zeros((1, 16, 16, 3), np.uint8))
            writer.close()
            return self._outputs.store_video(job, file, b"" if video.draft else None, writer.samples)
