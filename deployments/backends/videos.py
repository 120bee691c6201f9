"""The native video backend: denoises a video step by step, then decodes and writes it in chunks, one at a time.

Each chunk is a step to the engine, so that progress, cancellation and other users of the device get their turn.
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
from deployments.families.previews import LONG_SIDE as PREVIEW_SIDE
from deployments.families.video_family import DraftLatents, VideoFamily, VideoInputs, VideoState, video_params
from deployments.images import Pixels, fit, open_image
from deployments.outputs import Outputs
from deployments.video import reader
from deployments.video.reader import Frames
from deployments.video.writer import AUDIO_RATE, Audio, VideoFileError, VideoWriter

CHUNK = 48
"""Frames of a start video copied at a time."""


class StartVideo:
    """The video to continue, as a file in its own folder, which is deleted on `close` or garbage collection."""

    def __init__(self, data: bytes) -> None:
        """Raises VideoFileError if the video can't be decoded to its end."""
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
        """Sound, as long as the frames; None without a sound track."""

    @property
    def chunks(self) -> int:
        return -(-self.count // CHUNK)

    def last(self, count: int, size: tuple[int, int]) -> Frames:
        """Returns the last `count` frames, or all if there are fewer, at `size` (width, height). Raises
        VideoFileError."""
        return reader.last_frames(self._file, size, count)

    def frames(self, size: tuple[int, int]) -> Iterator[Frames]:
        """Yields all frames in `chunks` parts. Raises VideoFileError."""
        return reader.frames(self._file, size, chunk=CHUNK)


class VideoExport:
    """A result being written to a file in `folder`, which is deleted on `close` or garbage collection."""

    def __init__(self, parts: Iterator[Pixels], writer: VideoWriter, file: Path, folder: Path) -> None:
        self.done = 0
        self.file = file
        self._parts = parts
        self._writer = writer
        self._remove = weakref.finalize(self, _remove, writer, folder)

    def advance(self) -> None:
        """Decodes and writes the next part. Raises StopIteration after the last one, OutOfMemory, VideoFileError."""
        frames = next(self._parts)
        self._writer.write(frames)
        self.done += 1

    @property
    def samples(self) -> list[Pixels]:
        """Sampled frames for moderation."""
        return self._writer.samples

    def finish(self) -> None:
        """Completes the file. Raises VideoFileError."""
        self._writer.close()

    def close(self) -> None:
        self._remove()


@contextmanager
def export_folder() -> Iterator[Path]:
    """Yields a new folder for a VideoExport to own, and deletes it if the block raises."""
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
    """Implements StateLike. Writing a part counts as a step."""

    video: VideoState
    start: StartVideo | None = None
    """The video to continue, copied before the new frames."""
    export: VideoExport | None = None
    """The file being written; None before the first part."""

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
        """Number of parts that the file is written in."""
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
    """Input files by key."""
    start: StartVideo | None
    lead: Pixels | None
    """The last frames of `start`, (F, H, W, 3)."""
    checkpoint: bytes | None
    """Checkpoint of an earlier attempt."""


class VideoBackend:
    """Implements Backend[FetchedVideo, ActiveVideo]."""

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
        """`model` identifies the weights: only the same ones can resume a video. `threads` encode a file."""
        self._family = family
        self._model = model
        self._enlarge: Enlarge = enlarge
        self._threads = threads
        self.setup: Mapping[str, str] = dict(setup or {})
        self._fetcher = InputFetcher(store)
        self._outputs = Outputs(store)
        self._checkpoints = VideoCheckpoints(store, model)

    def counts(self) -> Mapping[str, float]:
        return {}

    def fetch(self, job: GenerationJob) -> FetchedVideo:
        """Fetches the inputs, reads the start video and an earlier attempt's checkpoint: none of it needs the
        device."""
        video, inputs = video_params(job), self._fetcher.fetch_all(job.inputs.keys)
        checkpoint = self._checkpoints.read(job.checkpoint)
        if job.inputs.start_video is None:
            return FetchedVideo(job, video, inputs, None, None, checkpoint)
        height, width = self._family.shape(job, lead=0).canvas.size
        try:
            start = StartVideo(inputs[job.inputs.start_video])
            lead = start.last(lead_frames(start.count, self._family.scale.time), (width, height))
        except VideoFileError:
            raise JobError("the video to go on from can't be read") from None
        return FetchedVideo(job, video, inputs, start, lead, checkpoint)

    def encode(self, fetched: Sequence[FetchedVideo]) -> list[ActiveVideo | JobError]:
        return [self._initial_state(each) for each in fetched]

    def step(self, states: Sequence[ActiveVideo]) -> None:
        """Steps one video after the other. After a failure, those before it have advanced and may be stepped again."""
        for state in states:
            if state.done_steps < state.total_steps:
                with translate_device_errors():
                    self._advance(state)

    def finish(self, state: ActiveVideo) -> Callable[[], Output]:
        export = state.export
        assert export is not None
        # Before `export.finish`, which can't be repeated: this may run out of memory, and is then called again.
        with translate_device_errors():
            latents = self._draft_latents(state)
        try:
            export.finish()
        except VideoFileError as error:
            raise RuntimeError(str(error)) from error
        return partial(self._store, state.job, export, latents, state.start)

    def preview(self, state: ActiveVideo) -> Callable[[], Preview] | None:
        with translate_device_errors():
            pixels = self._family.preview_frame(state.video)
        if pixels is None:
            return None
        request = state.job.request
        scale = min(1.0, PREVIEW_SIDE / max(request.width, request.height))
        small = fit(pixels, max(1, round(request.width * scale)), max(1, round(request.height * scale)), "smooth")
        return partial(self._outputs.store_preview, state.job, small, state.done_steps, state.total_steps)

    def _store(
        self, job: GenerationJob, export: VideoExport, latents: bytes | None, start: StartVideo | None
    ) -> Output:
        """Stores the result. When it returns, no checkpoint is being written, so that the service may delete them."""
        try:
            self._checkpoints.settle()
            return self._outputs.store_video(job, export.file, latents, export.samples)
        finally:
            # Not left to garbage collection: after a failure, its traceback may refer to both.
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
                state.export = self._start_export(state)
            state.export.advance()
        except Exception as error:
            # A decoder can't continue after a failure, so a retry starts the file anew.
            if state.export is not None:
                state.export.close()
                state.export = None
            if isinstance(error, VideoFileError):
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
        """Returns the latents that a draft is enhanced from; None for other videos."""
        if not video_params(state.job).draft:
            return None
        draft = self._family.draft(state.video)
        return pack_latents({"video": draft.video, "audio": draft.audio}, {"model": self._model})

    def _start_export(self, state: ActiveVideo) -> VideoExport:
        job, video, start = state.job, video_params(state.job), state.start
        size = (job.request.width, job.request.height)
        parts, count = self._family.frames(state.video), video.frames
        height, width = state.video.shape.canvas.frame
        rendered = (width, height)
        if start is not None or self._enlarge == "sharp":
            parts, rendered = (np.stack([fit(frame, *size, self._enlarge) for frame in part]) for part in parts), size
        audio = self._family.decode_audio(state.video).resample(AUDIO_RATE) if video.audio else None
        if start is not None:
            parts, count = chain(start.frames(size), parts), start.count + count
            audio = _concat_audio(start, audio)
        with export_folder() as folder:
            file = folder / "video.mp4"
            writer = VideoWriter(file, rendered=rendered, size=size, frames=count, audio=audio, threads=self._threads)
            return VideoExport(parts, writer, file, folder)


def _concat_audio(start: StartVideo, audio: Audio | None) -> Audio | None:
    """Returns the sound of both videos, silent for one that has none; None if neither has any."""
    if audio is None:
        return start.audio
    return (start.audio or Audio.silence(start.count / FPS, AUDIO_RATE)).concat(audio)
