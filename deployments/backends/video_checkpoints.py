"""Checkpoints of unfinished videos in the object store, from which another replica resumes.

The state of a video after step n depends on its job only. So all attempts share one object, and each may go on from it.
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
    """The bytes hold no latents, or others than needed."""


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
    """Writes checkpoints in its own thread, so that steps don't wait for the store."""

    def __init__(self, store: ObjectStore, model: str) -> None:
        """`model` identifies the weights, as latents are useless to others."""
        self._store = store
        self._model = model
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._write_future: Future[None] | None = None

    def keep(self, state: VideoState) -> None:
        """Writes the present state, unless the last write is still running: a later state will do."""
        if self._write_future is None or self._write_future.done():
            assert state.job.request.video is not None
            # Steps replace the tensors of a state and never change them, so they can be written meanwhile.
            tensors = {"video": state.video.x, "audio": state.audio.x}
            self._write_future = self._writer.submit(self._write, state.job.checkpoint, tensors, state.i)

    def read(self, key: str) -> bytes | None:
        """Returns the checkpoint of an earlier attempt; None if there is none or the store can't be reached."""
        try:
            return self._store.get_blocking(key)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            logger.warning("a video starts over, its checkpoint can't be read: %s", error)
            return None

    def resume(self, state: VideoState, checkpoint: bytes | None) -> None:
        """Continues a video that has no steps yet from `checkpoint`, if that is of this model and shape."""
        if checkpoint is None:
            return
        try:
            tensors, metadata = unpack_latents(checkpoint)
            video, audio, steps = tensors["video"], tensors["audio"], int(metadata["steps"])
        except (BrokenLatentsError, KeyError, ValueError) as error:
            logger.warning("%s starts over, its checkpoint can't be read: %s", state.job.id, error)
            return
        fits = video.shape == state.video.x.shape and audio.shape == state.audio.x.shape
        if metadata.get("model") != self._model or not fits or not 0 < steps <= state.steps:
            logger.warning("%s starts over, its checkpoint is of another model", state.job.id)
            return
        device = state.video.x.device
        state.video.x, state.audio.x, state.i = video.to(device), audio.to(device), steps
        logger.info("%s resumes at step %d of %d", state.job.id, steps, state.steps)

    def settle(self) -> None:
        """Waits until nothing is being written."""
        if self._write_future is not None:
            self._write_future.result()

    def _write(self, key: str, tensors: dict[str, Tensor], steps: int) -> None:
        data = pack_latents(tensors, {"model": self._model, "steps": str(steps)})
        try:
            self._store.put_blocking(key, data, LATENTS_TYPE)
        except (BaseError, OSError) as error:
            # Without a checkpoint, a video that is lost starts over.
            logger.warning("a checkpoint could not be stored: %s", error)
