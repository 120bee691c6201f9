"""Pipeline output: what a diffusers pipeline returns, as pixels and sound.

Pipelines call their results `images`, `image`, `frames` or `video`, as tensors, arrays or Pillow's images. Some also
say which of them their own safety checker has blacked out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from deployments.backend import ContentFlagged, NotFinite
from deployments.images import Pixels
from deployments.video.writer import Audio

_MEDIA: Final = ("frames", "images", "image", "video")
_FLAGS: Final = ("nsfw_content_detected", "nsfw_detected")
_CHUNK_VALUES: Final = 2**26
"""The values that are converted at a time: of a long video, a copy of all would need gigabytes."""


class PipelineOutput:
    """The output of a call for one or several jobs."""

    def __init__(self, output: Any) -> None:
        self._output = output

    def pixels(self, index: int) -> Pixels:
        """Returns the `index`-th result: an image (H, W, C), or a video (F, H, W, C).

        Layers of an image come as the frames of a video do. Raises NotFinite where there is nothing, or where numbers
        are none, ContentFlagged.
        """
        media = self._field(_MEDIA)
        if media is None:
            raise NotFinite(f"the pipeline answers with {type(self._output).__name__}, without images or frames")
        flags = self._field(_FLAGS)
        if flags is not None and bool(np.ravel(flags)[index]):
            raise ContentFlagged
        result = media[index]
        if not len(result):
            raise NotFinite("the pipeline's result is empty")
        is_one = not isinstance(result, list) and np.ndim(result) == 3
        return _pixels([result])[0] if is_one else _pixels(result)

    def audio(self, pipeline: Any, index: int) -> Audio | None:
        """Returns the sound of the `index`-th video, where the pipeline makes one and tells its rate."""
        of_batch, of_one = self._field(("audio",)), self._field(("sound",))
        rate = _sampling_rate(pipeline)
        if rate is None or (of_batch is None and of_one is None):
            return None
        sound = of_one if of_batch is None else of_batch[index]
        return Audio(sound.float().cpu().numpy(), rate)

    def _field(self, names: tuple[str, ...]) -> Any:
        found = (self._output.get(name) for name in names if hasattr(self._output, "get"))
        return next((each for each in found if each is not None), None)


def _sampling_rate(pipeline: Any) -> int | None:
    """Returns the rate of the waves that a pipeline makes, in Hz."""
    rate = getattr(pipeline, "audio_sample_rate", None)
    for name, field in (("vocoder", "output_sampling_rate"), ("sound_tokenizer", "sampling_rate")):
        config = getattr(getattr(pipeline, name, None), "config", {})
        rate = config.get(field, rate)
    return None if rate is None else int(rate)


def _pixels(frames: Any) -> Pixels:
    """Converts tensors (F, C, H, W) or arrays (F, H, W, C) of 0 to 1, or a list of either or of Pillow's images, to
    (F, H, W, C)."""
    values = max(1, int(np.prod(np.shape(frames[0]))))
    chunk = max(1, _CHUNK_VALUES // values)
    pixels: Pixels | None = None
    for first in range(0, len(frames), chunk):
        part = _convert(frames[first : first + chunk])
        if pixels is None:
            pixels = np.empty((len(frames), *part.shape[1:]), np.uint8)
        pixels[first : first + len(part)] = part
    assert pixels is not None
    return pixels


def _convert(frames: Any) -> Pixels:
    if isinstance(frames, list):
        stack: Any = torch.stack if isinstance(frames[0], Tensor) else np.stack
        frames = stack([one if isinstance(one, Tensor) else np.asarray(one) for one in frames])
    if isinstance(frames, Tensor):
        frames = frames.movedim(1, -1)
    elif frames.dtype != np.uint8:
        frames = torch.from_numpy(frames)
    if isinstance(frames, Tensor):
        if not torch.isfinite(frames).all():
            raise NotFinite("the pipeline's result is not finite")
        frames = (frames.float() * 255).round_().clamp_(0, 255).to(torch.uint8).contiguous().cpu().numpy()
    return np.repeat(frames, 3, axis=-1) if frames.shape[-1] == 1 else frames
