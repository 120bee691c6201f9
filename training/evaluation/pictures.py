"""Pictures of scenes and masks as clients would send them, and as perfect answers."""

from __future__ import annotations

import io
import math

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from training.evaluation.question import Question
from training.evaluation.sizes import Size
from training.lessons.pictures import Mask
from training.worlds.pictures.drawing import draw, masked
from training.worlds.pictures.judge import Pixels
from training.worlds.pictures.scene import Grid, Scene


def drawn(scene: Scene, grid: Grid, size: Size, outlined: bool = False) -> Pixels:
    """(height, width, 3): drawn for a canvas, stretched to `size`."""
    resolution = math.ceil(max(size[0] / grid[1], size[1] / grid[0]))
    picture, _ = draw([scene], grid, resolution, samples=1, outlined=outlined)
    pixels = np.asarray(((picture[0].permute(1, 2, 0) + 1) * 127.5).round().byte().numpy())
    if pixels.shape[1::-1] == size:
        return pixels
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def drawn_mask(mask: Mask, size: Size) -> npt.NDArray[np.uint8]:
    """(height, width): 255 where the picture is painted anew, else 0."""
    return np.where(masked(mask, *size).numpy(), 255, 0).astype(np.uint8)


def answer(question: Question) -> Pixels:
    """The right picture."""
    size = question.width, question.height
    pixels = drawn(question.target, question.grid, size, outlined=(question.outlined or 0) >= 0.5)
    if question.mask is None:
        return pixels
    repaint = drawn_mask(question.mask, size)[..., None] >= 128
    return np.where(repaint, pixels, drawn(question.references[0], question.grid, size))


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Of RGB (H, W, 3) or grey (H, W)."""
    order = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".png", order)[1].tobytes()


def opened(data: bytes) -> Pixels:
    with Image.open(io.BytesIO(data)) as picture:
        return np.array(picture.convert("RGB"))
