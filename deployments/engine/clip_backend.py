"""The engine's backend for clips: each is denoised step by step, then filmed part by part, alone.

A part is a step to the engine, so that progress, cancelling and whoever shares the device come in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from obstore.exceptions import BaseError

from deployments.contract.clip import FPS, Clip
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output
from deployments.contract.model import Enlarge
from deployments.contract.objects import ObjectStore
from deployments.engine import latents
from deployments.engine.backend import JobError, Unavailable
from deployments.engine.clip_checkpoints import ClipCheckpoints
from deployments.engine.clip_state import ClipState
from deployments.engine.fetching import Fetcher
from deployments.engine.filming import Filming, folder_for_a_clip
from deployments.engine.step import translated_out_of_memory
from deployments.families.clip_shape import lead_of
from deployments.families.clips import ClipFamily, ClipInputs, Draft
from deployments.families.enlarge import fitted
from deployments.families.pictures import Pixels, open_picture
from deployments.families.preview import LONG_SIDE as PREVIEW_SIDE
from deployments.footage import reader
from deployments.footage.ffmpeg import FootageError
from deployments.footage.sound import Sound
from deployments.footage.writer import SOUND_RATE, ClipWriter
from deployments.outputs import Outputs

_START_CHUNK = 48
"""Frames of the clip to go on from that are copied at a time."""
_GONE = "an input is no longer available"
_UNREADABLE = "the video to go on from can't be read"


class ClipBackend:
    """Implements engine.backend.Backend[ClipState]."""

    def __init__(
        self,
        family: ClipFamily,
        store: ObjectStore,
        model: str,
        *,
        enlarge: Enlarge = "smooth",
        threads: int | None = None,
    ) -> None:
        """`model` names the weights: what it began, only the same can go on with. `threads` encode a file."""
        self._family = family
        self._store = store
        self._model = model
        self._enlarge: Enlarge = enlarge
        self._threads = threads
        self._fetcher = Fetcher(store)
        self._outputs = Outputs(store)
        self._checkpoints = ClipCheckpoints(store, model)

    def encode(self, jobs: Sequence[GenerationJob]) -> list[ClipState | JobError]:
        return [self._begun(job) for job in jobs]

    def step(self, states: Sequence[ClipState]) -> None:
        """One after the other. When one fails, those before it are a step further, and may be stepped again."""
        for state in states:
            if state.done_steps < state.total_steps:
                with translated_out_of_memory():
                    self._advance(state)

    def finish(self, state: ClipState) -> Output:
        """Nothing of the clip is being written anywhere when this returns: whoever gets the result may tidy up."""
        job, filming = state.job, state.filming
        assert filming is not None
        self._checkpoints.settle()
        try:
            filming.finish()
            with translated_out_of_memory():
                kept = self._kept_latents(state)
            output = self._outputs.store_clip(job, filming.file, kept)
        except FootageError as error:
            raise RuntimeError(str(error)) from error
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error
        filming.close()
        return output

    def preview(self, state: ClipState) -> Preview | None:
        pixels = self._family.still(state)
        if pixels is None:
            return None
        small = fitted(pixels, *_small(state.job), "smooth")
        return self._outputs.store_preview(state.job, small, state.done_steps, state.total_steps)

    def _advance(self, state: ClipState) -> None:
        if not state.denoised:
            self._family.step(state)
            self._checkpoints.keep(state)
            return
        try:
            if state.filming is None:
                state.filming = self._filming(state)
            state.filming.advance()
        except Exception as error:
            # What decodes can't go on behind what it failed at: if the clip is tried again, it is filmed anew.
            if state.filming is not None:
                state.filming.close()
                state.filming = None
            if isinstance(error, FootageError):
                raise RuntimeError(str(error)) from error
            raise

    def _begun(self, job: GenerationJob) -> ClipState | JobError:
        try:
            clip = _clip(job)
            fetched = self._fetched(*job.inputs)
            inputs, parts = self._inputs(job, clip, fetched)
            with translated_out_of_memory():
                state = self._family.encode(job, inputs)
        except JobError as error:
            return error
        state.chunks += parts
        self._checkpoints.resume(state)
        return state

    def _fetched(self, *keys: str) -> Mapping[str, bytes]:
        """Raises JobError, Unavailable."""
        fetched = self._fetcher.fetched(keys)
        present = {key: data for key, data in fetched.items() if data is not None}
        if len(present) < len(fetched):
            raise JobError(_GONE)
        return present

    def _inputs(self, job: GenerationJob, clip: Clip, fetched: Mapping[str, bytes]) -> tuple[ClipInputs, int]:
        """And in how many parts the clip to go on from is copied. Raises JobError."""
        keyframes = tuple(np.array(open_picture(fetched[key])) for key in job.references)
        draft = None if clip.enhance is None else self._draft(fetched[clip.enhance])
        if clip.start is None:
            return ClipInputs(keyframes, draft=draft), 0
        with TemporaryDirectory(prefix="clip-") as folder:
            start = _put(Path(folder), fetched[clip.start])
            try:
                count = reader.probe(start).frames
                height, width = self._family.shape(job, lead=0).canvas.size
                lead = reader.last_frames(start, (width, height), lead_of(count, self._family.scale.time))
                heard = reader.sound(start)
            except FootageError:
                raise JobError(_UNREADABLE) from None
        if heard is not None:
            before = round((count - len(lead)) / FPS * heard.rate)
            heard = Sound(heard.fitted(count / FPS).samples[:, before:], heard.rate)
        return ClipInputs(keyframes, lead, heard, draft), -(-count // _START_CHUNK)

    def _draft(self, data: bytes) -> Draft:
        try:
            tensors, words = latents.unpacked(data)
            draft = Draft(tensors["picture"], tensors["sound"])
        except (latents.BrokenLatentsError, KeyError):
            raise JobError("the draft can't be read: make it again") from None
        if words.get("model") != self._model:
            raise JobError("the draft was made by another model: make it again")
        return draft

    def _kept_latents(self, state: ClipState) -> bytes | None:
        """What a draft can be enhanced from."""
        if not _clip(state.job).draft:
            return None
        draft = self._family.draft(state)
        return latents.packed({"picture": draft.picture, "sound": draft.sound}, {"model": self._model})

    def _filming(self, state: ClipState) -> Filming:
        """Begins the file. Raises JobError when the clip to go on from is gone or can't be read."""
        job, clip = state.job, _clip(state.job)
        size = (job.width, job.height)
        parts, count = self._family.frames(state), clip.frames
        height, width = state.shape.canvas.frame
        rendered = (width, height)
        if clip.start is not None or self._enlarge == "sharp":
            parts, rendered = (self._enlarged(part, size) for part in parts), size
        sound = self._family.heard(state).resampled(SOUND_RATE) if clip.sound else None
        with folder_for_a_clip() as folder:
            if clip.start is not None:
                try:
                    start = _put(folder, self._fetched(clip.start)[clip.start])
                    before = reader.probe(start).frames
                    if sound is not None:
                        heard = reader.sound(start, SOUND_RATE) or Sound(np.zeros((2, 0), np.float32), SOUND_RATE)
                        sound = heard.fitted(before / FPS).joined(sound)
                except FootageError:
                    raise JobError(_UNREADABLE) from None
                parts, count = chain(reader.frames(start, size, chunk=_START_CHUNK), parts), before + count
            file = folder / "clip.mp4"
            writer = ClipWriter(file, rendered=rendered, size=size, frames=count, sound=sound, threads=self._threads)
            return Filming(parts, writer, file, folder)

    def _enlarged(self, part: Pixels, size: tuple[int, int]) -> Pixels:
        return np.stack([fitted(frame, *size, self._enlarge) for frame in part])


def _clip(job: GenerationJob) -> Clip:
    if job.clip is None:
        raise JobError("this model makes videos, not pictures")
    return job.clip


def _put(folder: Path, data: bytes) -> Path:
    file = folder / "start.mp4"
    file.write_bytes(data)
    return file


def _small(job: GenerationJob) -> tuple[int, int]:
    """Width and height of a preview."""
    scale = min(1.0, PREVIEW_SIDE / max(job.width, job.height))
    return max(1, round(job.width * scale)), max(1, round(job.height * scale))
