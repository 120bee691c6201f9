"""The engine's backend for clips: each is denoised step by step, then written to a file part by part, alone.

A part is a step to the engine, so that progress, cancelling and whoever shares the device come in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from deployments.backends import latents
from deployments.backends.active_clip import ActiveClip
from deployments.backends.clip_checkpoints import ClipCheckpoints
from deployments.backends.clip_export import ClipExport, export_folder
from deployments.backends.inputs import InputFetcher
from deployments.backends.start_clip import StartClip
from deployments.contract.clip import FPS, Clip
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.model import Enlarge
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import JobError
from deployments.families.clip_family import ClipFamily, ClipInputs, Draft
from deployments.families.clip_shape import lead_of
from deployments.families.device_errors import translated_device_errors
from deployments.families.preview import LONG_SIDE as PREVIEW_SIDE
from deployments.outputs import Outputs
from deployments.pictures.enlarge import fitted
from deployments.pictures.pixels import Pixels, open_picture
from deployments.video.ffmpeg import VideoError
from deployments.video.sound import Sound
from deployments.video.writer import SOUND_RATE, ClipWriter


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
            tensors, metadata = latents.unpacked(data)
            draft = Draft(tensors["picture"], tensors["sound"])
        except (latents.BrokenLatentsError, KeyError):
            raise JobError("the draft can't be read: make it again") from None
        if metadata.get("model") != self._model:
            raise JobError("the draft was made by another model: make it again")
        return draft

    def _kept_latents(self, state: ActiveClip) -> bytes | None:
        """What a draft can be enhanced from."""
        if not _clip(state.job).draft:
            return None
        draft = self._family.draft(state.clip)
        return latents.packed({"picture": draft.picture, "sound": draft.sound}, {"model": self._model})

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
