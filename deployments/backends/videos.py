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
from deployments.backends.video_checkpoints import BrokenLatentsError, ClipCheckpoints, pack_latents, unpack_latents
from deployments.contract.events import Preview
from deployments.contract.job import FPS, Clip, GenerationJob, Output
from deployments.contract.model import Enlarge
from deployments.contract.objects import ObjectStore
from deployments.families.canvas import lead_of
from deployments.families.device_errors import translated_device_errors
from deployments.families.vae import LONG_SIDE as PREVIEW_SIDE
from deployments.families.video_family import ClipFamily, ClipInputs, ClipState, Draft
from deployments.images import Pixels, fitted, open_picture
from deployments.outputs import Outputs
from deployments.video import reader
from deployments.video.reader import Frames
from deployments.video.writer import SOUND_RATE, ClipWriter, Sound, VideoError

CHUNK = 48
"""Frames that are copied at a time."""


class StartClip:
    """Owns a folder with the file in it: gone when this is closed, or when nobody holds it any more."""

    def __init__(self, data: bytes) -> None:
        """Raises VideoError when it can't be decoded to its end."""
        folder = tempfile.mkdtemp(prefix="start-")
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._file = Path(folder) / "start.mp4"
        try:
            self._file.write_bytes(data)
            self.count = reader.probe(self._file).frames
            heard = reader.sound(self._file)
        except BaseException:
            self.close()
            raise
        self.sound: Sound | None = None if heard is None else heard.fitted(self.count / FPS)
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


class ClipExport:
    """Owns `folder`, and all in it: gone when this is closed, or when nobody holds it any more."""

    def __init__(self, parts: Iterator[Pixels], writer: ClipWriter, file: Path, folder: Path) -> None:
        self.done = 0
        self.still: Pixels | None = None
        """The first frame, once it is there."""
        self.file = file
        self._parts = parts
        self._writer = writer
        self._remove = weakref.finalize(self, _remove, writer, folder)

    def advance(self) -> None:
        """Decodes and writes the next part. Raises StopIteration after the last, OutOfMemory, VideoError."""
        frames = next(self._parts)
        if self.still is None:
            self.still = frames[0].copy()
        self._writer.write(frames)
        self.done += 1

    def finish(self) -> None:
        """The file is complete then. Raises VideoError."""
        self._writer.close()

    def close(self) -> None:
        self._remove()


@contextmanager
def export_folder() -> Iterator[Path]:
    """A new folder for a ClipExport to own; gone when there is to be none."""
    folder = Path(tempfile.mkdtemp(prefix="clip-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _remove(writer: ClipWriter, folder: Path) -> None:
    writer.discard()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(eq=False, slots=True)
class ActiveClip:
    """Implements engine.backend.StateLike. A part that is written counts as a step."""

    clip: ClipState
    start: StartClip | None = None
    """The clip to go on from, which is copied before the new frames."""
    export: ClipExport | None = None
    """The file, once it is begun."""

    @property
    def job(self) -> GenerationJob:
        return self.clip.job

    @property
    def key(self) -> Hashable:
        return self.clip.is_denoised

    @property
    def tokens(self) -> int:
        return prod(self.clip.shape.grid)

    @property
    def parts(self) -> int:
        """In which the file will be written."""
        return self.clip.chunks + (self.start.chunks if self.start is not None else 0)

    @property
    def done_steps(self) -> int:
        return self.clip.i + (self.export.done if self.export is not None else 0)

    @property
    def total_steps(self) -> int:
        return self.clip.steps + self.parts

    @property
    def steps_alike(self) -> int:
        return (self.total_steps if self.clip.is_denoised else self.clip.steps) - self.done_steps


@dataclass(frozen=True, slots=True)
class FetchedClip:
    job: GenerationJob
    clip: Clip
    inputs: Mapping[str, bytes]
    """By their keys."""
    start: StartClip | None
    lead: Pixels | None
    """The last frames of `start`, (F, H, W, 3)."""
    kept: bytes | None
    """By an earlier attempt."""


class ClipBackend:
    """Implements engine.backend.Backend[FetchedClip, ActiveClip]."""

    def __init__(
        self,
        family: ClipFamily,
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
        self._checkpoints = ClipCheckpoints(store, model)

    @property
    def setup(self) -> Mapping[str, str]:
        return self._setup

    def counts(self) -> Mapping[str, float]:
        return {}

    def fetch(self, job: GenerationJob) -> FetchedClip:
        """Its inputs, with a start video read, and how far an earlier attempt came: what waits for a store or a decoder
        keeps the device from nobody."""
        clip, inputs = _clip(job), self._fetcher.present(job.inputs)
        kept = self._checkpoints.read(clip.checkpoint)
        if clip.start is None:
            return FetchedClip(job, clip, inputs, None, None, kept)
        height, width = self._family.shape(job, lead=0).canvas.size
        try:
            start = StartClip(inputs[clip.start])
            lead = start.last(lead_of(start.count, self._family.scale.time), (width, height))
        except VideoError:
            raise JobError("the video to go on from can't be read") from None
        return FetchedClip(job, clip, inputs, start, lead, kept)

    def encode(self, fetched: Sequence[FetchedClip]) -> list[ActiveClip | JobError]:
        return [self._begun(one) for one in fetched]

    def step(self, states: Sequence[ActiveClip]) -> None:
        """One after the other. When one fails, those before it are a step further, and may be stepped again."""
        for state in states:
            if state.done_steps < state.total_steps:
                with translated_device_errors():
                    self._advance(state)

    def finish(self, state: ActiveClip) -> Callable[[], Output]:
        export = state.export
        assert export is not None
        # First, as it may run out of memory and be asked for again; a file is finished once.
        with translated_device_errors():
            kept = self._kept_latents(state)
        try:
            export.finish()
        except VideoError as error:
            raise RuntimeError(str(error)) from error
        return partial(self._store, state.job, export, kept, state.start)

    def preview(self, state: ActiveClip) -> Callable[[], Preview] | None:
        with translated_device_errors():
            pixels = self._family.still(state.clip)
        if pixels is None:
            return None
        small = fitted(pixels, *_small(state.job), "smooth")
        return partial(self._outputs.store_preview, state.job, small, state.done_steps, state.total_steps)

    def _store(self, job: GenerationJob, export: ClipExport, kept: bytes | None, start: StartClip | None) -> Output:
        """Nothing of the clip is being written anywhere when this returns: whoever gets the result may tidy up."""
        self._checkpoints.settle()
        assert export.still is not None
        output = self._outputs.store_clip(job, export.file, kept, export.still)
        export.close()
        if start is not None:
            start.close()
        return output

    def _advance(self, state: ActiveClip) -> None:
        if not state.clip.is_denoised:
            self._family.step(state.clip)
            self._checkpoints.keep(state.clip)
            return
        try:
            if state.export is None:
                state.export = self._begin_export(state)
            state.export.advance()
        except Exception as error:
            # What decodes can't go on behind what it failed at: if the clip is tried again, its file begins anew.
            if state.export is not None:
                state.export.close()
                state.export = None
            if isinstance(error, VideoError):
                raise RuntimeError(str(error)) from error
            raise

    def _begun(self, fetched: FetchedClip) -> ActiveClip | JobError:
        try:
            inputs = self._inputs(fetched)
            with translated_device_errors():
                clip_state = self._family.encode(fetched.job, inputs)
        except JobError as error:
            return error
        self._checkpoints.resume(clip_state, fetched.kept)
        return ActiveClip(clip_state, fetched.start)

    def _inputs(self, fetched: FetchedClip) -> ClipInputs:
        """Raises JobError."""
        clip, start, lead = fetched.clip, fetched.start, fetched.lead
        keyframes = tuple(np.array(open_picture(fetched.inputs[key])) for key in fetched.job.references)
        draft = None if clip.enhance is None else self._draft(fetched.inputs[clip.enhance])
        if start is None or lead is None:
            return ClipInputs(keyframes, draft=draft)
        heard = start.sound
        if heard is not None:
            before = round((start.count - len(lead)) / FPS * heard.rate)
            heard = Sound(heard.samples[:, before:], heard.rate)
        return ClipInputs(keyframes, lead, heard, draft)

    def _draft(self, data: bytes) -> Draft:
        try:
            tensors, metadata = unpack_latents(data)
            draft = Draft(tensors["picture"], tensors["sound"])
        except (BrokenLatentsError, KeyError):
            raise JobError("the draft can't be read: make it again") from None
        if metadata.get("model") != self._model:
            raise JobError("the draft was made by another model: make it again")
        return draft

    def _kept_latents(self, state: ActiveClip) -> bytes | None:
        """What a draft can be enhanced from."""
        if not _clip(state.job).draft:
            return None
        draft = self._family.draft(state.clip)
        return pack_latents({"picture": draft.picture, "sound": draft.sound}, {"model": self._model})

    def _begin_export(self, state: ActiveClip) -> ClipExport:
        """Begins the file."""
        job, clip, start = state.job, _clip(state.job), state.start
        size = (job.width, job.height)
        parts, count = self._family.frames(state.clip), clip.frames
        height, width = state.clip.shape.canvas.frame
        rendered = (width, height)
        if start is not None or self._enlarge == "sharp":
            parts, rendered = (self._enlarged(part, size) for part in parts), size
        sound = self._family.heard(state.clip).resampled(SOUND_RATE) if clip.sound else None
        if start is not None:
            parts, count = chain(start.frames(size), parts), start.count + count
            sound = _joined(start, sound)
        with export_folder() as folder:
            file = folder / "clip.mp4"
            writer = ClipWriter(file, rendered=rendered, size=size, frames=count, sound=sound, threads=self._threads)
            return ClipExport(parts, writer, file, folder)

    def _enlarged(self, part: Pixels, size: tuple[int, int]) -> Pixels:
        return np.stack([fitted(frame, *size, self._enlarge) for frame in part])


def _clip(job: GenerationJob) -> Clip:
    if job.clip is None:
        raise JobError("this model makes videos, not pictures")
    return job.clip


def _joined(start: StartClip, sound: Sound | None) -> Sound | None:
    """What is heard of both: where one has none, it is silent there."""
    if sound is None:
        return start.sound
    return (start.sound or Sound.silence(start.count / FPS, SOUND_RATE)).joined(sound)


def _small(job: GenerationJob) -> tuple[int, int]:
    """Width and height of a preview."""
    scale = min(1.0, PREVIEW_SIDE / max(job.width, job.height))
    return max(1, round(job.width * scale)), max(1, round(job.height * scale))
