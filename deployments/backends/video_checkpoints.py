"""Checkpoints of videos between two steps, in the object store: another replica resumes where one was lost.

What a video is after step n depends on its job alone. So all attempts share one object, and it doesn't matter which of
them wrote it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from obstore.exceptions import BaseError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from deployments.contract.objects import ObjectStore
from deployments.families.video_family import VideoState

logger = logging.getLogger(__name__)

LATENTS_TYPE = "application/octet-stream"
_HEADER_BYTES = 8


class BrokenLatentsError(Exception):
    """The bytes hold no latents, or not those that are needed."""


def pack_latents(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    return save({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, dict(metadata))


def unpack_latents(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Raises BrokenLatentsError."""
    try:
        tensors = load(data)
        length = int.from_bytes(data[:_HEADER_BYTES], "little")
        metadata = json.loads(data[_HEADER_BYTES : _HEADER_BYTES + length])["__metadata__"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise BrokenLatentsError(str(error)) from error
    return tensors, metadata


class VideoCheckpoints:
    """Writes in a thread of its own: steps don't wait for the store."""

    def __init__(self, store: ObjectStore, model: str) -> None:
        """`model` names the weights: latents of others would be of no use."""
        self._store = store
        self._model = model
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._write_future: Future[None] | None = None

    def keep(self, state: VideoState) -> None:
        """Keeps the video as it is now, unless the last one is still being written: a later one will do."""
        if self._write_future is None or self._write_future.done():
            assert state.job.request.video is not None
            # The tensors of a state are replaced by a step and never changed, so they can be written meanwhile.
            tensors = {"video": state.video.x, "audio": state.audio.x}
            self._write_future = self._writer.submit(self._write, state.job.checkpoint, tensors, state.i)

    def read(self, key: str) -> bytes | None:
        """What an earlier attempt kept; None where there is nothing, or it is out of reach."""
        try:
            return self._store.get_blocking(key)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            logger.warning("a video begins anew, its checkpoint can't be read: %s", error)
            return None

    def resume(self, state: VideoState, checkpoint: bytes | None) -> None:
        """Puts a video that has just begun where an earlier attempt was that wrote this `checkpoint`."""
        if checkpoint is None:
            return
        try:
            tensors, metadata = unpack_latents(checkpoint)
            video, audio, steps = tensors["video"], tensors["audio"], int(metadata["steps"])
        except (BrokenLatentsError, KeyError, ValueError) as error:
            logger.warning("%s begins anew, its checkpoint can't be read: %s", state.job.id, error)
            return
        fits = video.shape == state.video.x.shape and audio.shape == state.audio.x.shape
        if metadata.get("model") != self._model or not fits or not 0 < steps <= state.steps:
            logger.warning("%s begins anew, its checkpoint is another model's", state.job.id)
            return
        device = state.video.x.device
        state.video.x, state.audio.x, state.i = video.to(device), audio.to(device), steps
        logger.info("%s goes on at step %d of %d", state.job.id, steps, state.steps)

    def settle(self) -> None:
        """Returns when nothing is being written any more."""
        if self._write_future is not None:
            self._write_future.result()

    def _write(self, key: str, tensors: dict[str, Tensor], steps: int) -> None:
        data = pack_latents(tensors, {"model": self._model, "steps": str(steps)})
        try:
            self._store.put_blocking(key, data, LATENTS_TYPE)
        except (BaseError, OSError) as error:
            # A checkpoint is a safety net; without it, a lost video begins anew.
            logger.warning("a checkpoint could not be kept: %s", error)
