"""The native video backend: denoises a video step by step, then decodes and writes it in chunks, one at a time.

A part is a step to the engine, so that progress, cancelling and whoever shares the device come in between.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path

import numpy as np

from deployments.backend import JobError
from deployments.backends.inputs import InputFetcher
from deployments.backends.video_checkpoints import BrokenLatentsError, VideoCheckpoints, pack_latents, unpack_latents
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.model import Enlarge
from deployments.contract.objects import ObjectStore
from deployments.contract.request import FPS, VideoParams
from deployments.families.canvas import lead_frames
from deployments.families.device_errors import translate_device_errors
from deployments.families.vae import LONG_SIDE as PREVIEW_SIDE
from deployments.families.video_family import DraftLatents, VideoFamily, VideoInputs, VideoState
from deployments.images import Pixels, fit, open_image
from deployments.outputs import Outputs
from deployments.video import reader
from deployments.video.reader import Frames
from deployments.video.writer import AUDIO_RATE, Audio, VideoError, VideoWriter

CHUNK = 48
"""Frames that are copied at a time."""


class StartVideo:
    """Owns a folder with the file in it: gone when this is closed, or when nobody holds it any more."""

    def __init__(self, data: bytes) -> None:
        """Raises VideoError when it can't be decoded to its end."""
        folder = tempfile.mkdtemp(prefix="start-")
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._file = Path(folder) / "start.mp4"
        try:
            self._file.write_bytes(data)
            self.count = reader.probe(self._file).frames
            audio = reader.audio(self._file)
        except BaseException:
            self.close()
            raise
        self.audio: Audio | None = None if audio is None else audio.fit(self.count / FPS)
        """As long as the frames; None where there is no sound track."""

    @property
    def chunks(self) -> int:
        return -(-self.count // CHUNK)

    def last(self, count: int, size: tuple[int, int]) -> Frames:
        """The last `count` frames, or all where there are fewer, of width and height `size`. Raises VideoError."""
        return reader.last_frames(self._file, size, count)

    def frames(self, size: tuple[int, int]) -> Iterator[Frames]:
        """All frames, in as many parts as `chunks` says. Raises VideoError."""
        return reader.frames(self._file, size, chunk=CHUNK)


class VideoExport:
    """Owns `folder`, and all in it: gone when this is closed, or when nobody holds it any more."""

    def __init__(self, parts: Iterator[Pixels], writer: VideoWriter, file: Path, folder: Path) -> None:
        self.done = 0
        self.file = file
        self._parts = parts
        self._writer = writer
        self._remove = weakref.finalize(self, _remove, writer, folder)

    def advance(self) -> None:
        """Decodes and writes the next part. Raises StopIteration after the last, OutOfMemory, VideoError."""
        frames = next(self._parts)
        self._writer.write(frames)
        self.done += 1

    @property
    def samples(self) -> list[Pixels]:
        """Of the frames so far, those that moderation looks at."""
        return self._writer.samples

    def finish(self) -> None:
        """The file is complete then. Raises VideoError."""
        self._writer.close()

    def close(self) -> None:
        self._remove()


@contextmanager
def export_folder() -> Iterator[Path]:
    """A new folder for a VideoExport to own; gone when there is to be none."""
    folder = Path(tempfile.mkdtemp(prefix="video-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _remove(writer: VideoWriter, folder: Path) -> None:
    writer.discard()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(eq=False, slots=True)
class ActiveVideo:
    """Implements engine.backend.StateLike. A part that is written counts as a step."""

    video: VideoState
    start: StartVideo | None = None
    """The video to go on from, which is copied before the new frames."""
    export: VideoExport | None = None
    """The file, once it is begun."""

    @property
    def job(self) -> GenerationJob:
        return self.video.job

    @property
    def key(self) -> Hashable:
        return self.video.is_denoised

    @property
    def tokens(self) -> int:
        return prod(self.video.shape.grid)

    @property
    def parts(self) -> int:
        """In which the file will be written."""
        return self.video.chunks + (self.start.chunks if self.start is not None else 0)

    @property
    def done_steps(self) -> int:
        return self.video.i + (self.export.done if self.export is not None else 0)

    @property
    def total_steps(self) -> int:
        return self.video.steps + self.parts

    @property
    def steps_alike(self) -> int:
        return (self.total_steps if self.video.is_denoised else self.video.steps) - self.done_steps


@dataclass(frozen=True, slots=True)
class FetchedVideo:
    job: GenerationJob
    video: VideoParams
    inputs: Mapping[str, bytes]
    """By their keys."""
    start: StartVideo | None
    lead: Pixels | None
    """The last frames of `start`, (F, H, W, 3)."""
    checkpoint: bytes | None
    """By an earlier attempt."""


class VideoBackend:
    """Implements engine.backend.Backend[FetchedVideo, ActiveVideo]."""

    def __init__(
        self,
        family: VideoFamily,
        store: ObjectStore,
        model: str,
        *,
        enlarge: Enlarge = "smooth",
        threads: int | None = None,
        setup: Mapping[str, str] | None = None,
    ) -> None:
        """`model` names the weights: what it began, only the same can go on with. `threads` encode a file.
        `setup` is told to operators."""
        self._family = family
        self._model = model
        self._enlarge: Enlarge = enlarge
        self._threads = threads
        self._setup = dict(setup or {})
        self._fetcher = InputFetcher(store)
        self._outputs = Outputs(store)
        self._checkpoints = VideoCheckpoints(store, model)

    @property
    def setup(self) -> Mapping[str, str]:
        return self._setup

    def counts(self) -> Mapping[str, float]:
        return {}

    def fetch(self, job: GenerationJob) -> FetchedVideo:
        """Its inputs, with a start video read, and how far an earlier attempt came: what waits for a store or a decoder
        keeps the device from nobody."""
        video, inputs = _video(job), self._fetcher.fetch_all(job.inputs.keys)
        checkpoint = self._checkpoints.read(job.checkpoint)
        if job.inputs.start_video is None:
            return FetchedVideo(job, video, inputs, None, None, checkpoint)
        height, width = self._family.shape(job, lead=0).canvas.size
        try:
            start = StartVideo(inputs[job.inputs.start_video])
            lead = start.last(lead_frames(start.count, self._family.scale.time), (width, height))
        except VideoError:
            raise JobError("the video to go on from can't be read") from None
        return FetchedVideo(job, video, inputs, start, lead, checkpoint)

    def encode(self, fetched: Sequence[FetchedVideo]) -> list[ActiveVideo | JobError]:
        return [self._initial_state(one) for one in fetched]

    def step(self, states: Sequence[ActiveVideo]) -> None:
        """One after the other. When one fails, those before it are a step further, and may be stepped again."""
        for state in states:
            if state.done_steps < state.total_steps:
                with translate_device_errors():
                    self._advance(state)

    def finish(self, state: ActiveVideo) -> Callable[[], Output]:
        export = state.export
        assert export is not None
        # First, as it may run out of memory and be asked for again; a file is finished once.
        with translate_device_errors():
            latents = self._draft_latents(state)
        try:
            export.finish()
        except VideoError as error:
            raise RuntimeError(str(error)) from error
        return partial(self._store, state.job, export, latents, state.start)

    def preview(self, state: ActiveVideo) -> Callable[[], Preview] | None:
        with translate_device_errors():
            pixels = self._family.preview_frame(state.video)
        if pixels is None:
            return None
        small = fit(pixels, *_small(state.job), "smooth")
        return partial(self._outputs.store_preview, state.job, small, state.done_steps, state.total_steps)

    def _store(
        self, job: GenerationJob, export: VideoExport, latents: bytes | None, start: StartVideo | None
    ) -> Output:
        """Nothing of the video is being written anywhere when this returns: whoever gets the result may tidy up."""
        try:
            self._checkpoints.settle()
            return self._outputs.store_video(job, export.file, latents, export.samples)
        finally:
            # At once also where it failed: its traceback may hold both.
            export.close()
            if start is not None:
                start.close()

    def _advance(self, state: ActiveVideo) -> None:
        if not state.video.is_denoised:
            self._family.step(state.video)
            self._checkpoints.keep(state.video)
            return
        try:
            if state.export is None:
                state.export = self._begin_export(state)
            state.export.advance()
        except Exception as error:
            # What decodes can't go on behind what it failed at: if the video is tried again, its file begins anew.
            if state.export is not None:
                state.export.close()
                state.export = None
            if isinstance(error, VideoError):
                raise RuntimeError(str(error)) from error
            raise

    def _initial_state(self, request: FetchedVideo) -> ActiveVideo | JobError:
        try:
            inputs = self._inputs(request)
            with translate_device_errors():
                video_state = self._family.encode(request.job, inputs)
        except JobError as error:
            return error
        self._checkpoints.resume(video_state, request.checkpoint)
        return ActiveVideo(video_state, request.start)

    def _inputs(self, request: FetchedVideo) -> VideoInputs:
        """Raises JobError."""
        keys, start, lead = request.job.inputs, request.start, request.lead
        keyframes = tuple(np.array(open_image(request.inputs[key])) for key in keys.references)
        draft = None if keys.draft is None else self._draft(request.inputs[keys.draft])
        if start is None or lead is None:
            return VideoInputs(keyframes, draft=draft)
        audio = start.audio
        if audio is not None:
            before = round((start.count - len(lead)) / FPS * audio.rate)
            audio = Audio(audio.samples[:, before:], audio.rate)
        return VideoInputs(keyframes, lead, audio, draft)

    def _draft(self, data: bytes) -> DraftLatents:
        try:
            tensors, metadata = unpack_latents(data)
            draft = DraftLatents(tensors["video"], tensors["audio"])
        except (BrokenLatentsError, KeyError):
            raise JobError("the draft can't be read: make it again") from None
        if metadata.get("model") != self._model:
            raise JobError("the draft was made by another model: make it again")
        return draft

    def _draft_latents(self, state: ActiveVideo) -> bytes | None:
        """What a draft can be enhanced from."""
        if not _video(state.job).draft:
            return None
        draft = self._family.draft(state.video)
        return pack_latents({"video": draft.video, "audio": draft.audio}, {"model": self._model})

    def _begin_export(self, state: ActiveVideo) -> VideoExport:
        """Begins the file."""
        job, video, start = state.job, _video(state.job), state.start
        size = (job.request.width, job.request.height)
        parts, count = self._family.frames(state.video), video.frames
        height, width = state.video.shape.canvas.frame
        rendered = (width, height)
        if start is not None or self._enlarge == "sharp":
            parts, rendered = (self._enlarge_frames(part, size) for part in parts), size
        audio = self._family.decode_audio(state.video).resample(AUDIO_RATE) if video.audio else None
        if start is not None:
            parts, count = chain(start.frames(size), parts), start.count + count
            audio = _concat_audio(start, audio)
        with export_folder() as folder:
            file = folder / "video.mp4"
            writer = VideoWriter(file, rendered=rendered, size=size, frames=count, audio=audio, threads=self._threads)
            return VideoExport(parts, writer, file, folder)

    def _enlarge_frames(self, part: Pixels, size: tuple[int, int]) -> Pixels:
        return np.stack([fit(frame, *size, self._enlarge) for frame in part])


def _video(job: GenerationJob) -> VideoParams:
    if job.request.video is None:
        raise JobError("this model makes videos, not images")
    return job.request.video


def _concat_audio(start: StartVideo, audio: Audio | None) -> Audio | None:
    """What is heard of both: where one has none, it is silent there."""
    if audio is None:
        return start.audio
    return (start.audio or Audio.silence(start.count / FPS, AUDIO_RATE)).concat(audio)


def _small(job: GenerationJob) -> tuple[int, int]:
    """Width and height of a preview."""
    scale = min(1.0, PREVIEW_SIDE / max(job.request.width, job.request.height))
    return max(1, round(job.request.width * scale)), max(1, round(job.request.height * scale))
