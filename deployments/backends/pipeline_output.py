"""Pipeline output: converts what a diffusers pipeline returns to pixels and sound.

Pipelines call their results `images`, `image`, `frames` or `video`, as tensors, arrays or Pillow images. Some also name
those that their own safety checker blacked out.
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
"""Values converted at a time: a copy of a whole long video would need gigabytes."""


class PipelineOutput:
    def __init__(self, output: Any) -> None:
        self._output = output

    def pixels(self, index: int) -> Pixels:
        """Returns the `index`-th result: an image (H, W, C), or a video (F, H, W, C).

        Layers of an image are returned like the frames of a video. Raises ContentFlagged, and NotFinite for an empty
        result, or one with NaN or infinity.
        """
        media = self._field(_MEDIA)
        if media is None:
            raise NotFinite(f"the pipeline returned {type(self._output).__name__}, without images or frames")
        flags = self._field(_FLAGS)
        if flags is not None and bool(np.ravel(flags)[index]):
            raise ContentFlagged
        result = media[index]
        if not len(result):
            raise NotFinite("the pipeline's result is empty")
        is_image = not isinstance(result, list) and np.ndim(result) == 3
        return _pixels([result])[0] if is_image else _pixels(result)

    def audio(self, pipeline: Any, index: int) -> Audio | None:
        """Returns the sound of the `index`-th video; None without sound or a known sampling rate."""
        batch, single = self._field(("audio",)), self._field(("sound",))
        rate = _sampling_rate(pipeline)
        if rate is None or (batch is None and single is None):
            return None
        sound = single if batch is None else batch[index]
        return Audio(sound.float().cpu().numpy(), rate)

    def _field(self, names: tuple[str, ...]) -> Any:
        found = (self._output.get(name) for name in names if hasattr(self._output, "get"))
        return next((each for each in found if each is not None), None)


def _sampling_rate(pipeline: Any) -> int | None:
    rate = getattr(pipeline, "audio_sample_rate", None)
    for name, field in (("vocoder", "output_sampling_rate"), ("sound_tokenizer", "sampling_rate")):
        config = getattr(getattr(pipeline, name, None), "config", {})
        rate = config.get(field, rate)
    return None if rate is None else int(rate)


def _pixels(frames: Any) -> Pixels:
    """Converts to (F, H, W, C) of 0 to 255: tensors (F, C, H, W) or arrays (F, H, W, C) of 0 to 1, or a list of these
    or of Pillow images."""
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
        frames = stack([each if isinstance(each, Tensor) else np.asarray(each) for each in frames])
    if isinstance(frames, Tensor):
        frames = frames.movedim(1, -1)
    elif frames.dtype != np.uint8:
        frames = torch.from_numpy(frames)
    if isinstance(frames, Tensor):
        if not torch.isfinite(frames).all():
            raise NotFinite("the pipeline's result is not finite")
        frames = (frames.float() * 255).round_().clamp_(0, 255).to(torch.uint8).contiguous().cpu().numpy()
    return np.repeat(frames, 3, axis=-1) if frames.shape[-1] == 1 else frames
