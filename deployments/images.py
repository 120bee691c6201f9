"""Image operations: decoding to arrays, resizing, blending into a backdrop, recompression."""

from __future__ import annotations

import io
import math
import subprocess
from dataclasses import dataclass
from typing import Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from PIL import Image, ImageOps

from deployments.backend import JobError
from deployments.contract.model import Enlarge
from deployments.video.writer import VideoFileError, command

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""RGB, (height, width, 3), 0 to 255."""


def open_image(data: bytes) -> Image.Image:
    """Decodes an image to RGB, upright, with transparent parts on white.

    Format and size were checked at submission. Raises JobError for an image that can't be read all the same.
    """
    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image)
        return image.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        raise JobError("an input image cannot be read") from error


def stretch(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Resizes to `size`, (height, width). Returns the image itself if it has that size."""
    target = (size[1], size[0])
    # Pillow's Lanczos averages when shrinking, as its support grows with the factor.
    return image if image.size == target else image.resize(target, Image.Resampling.LANCZOS)


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Resizes to `width` x `height`. Returns the same array if it has that size.

    OpenCV's Lanczos skips pixels when shrinking, so smaller sides are averaged first.
    """
    rows, columns = pixels.shape[:2]
    pixels = _resize_with(pixels, min(width, columns), min(height, rows), cv2.INTER_AREA)
    return _resize_with(pixels, width, height, cv2.INTER_LANCZOS4)


def _resize_with(pixels: Pixels, width: int, height: int, interpolation: int) -> Pixels:
    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=interpolation), dtype=np.uint8)


_REACH = 0.04
"""Distance from the border up to which the correction reaches, as a share of the shorter side."""
_MAX_TONE = 40
"""Levels of 255 up to which a difference is one of tone; larger ones show other content."""
_SIDE = 256
"""Longest side at which the correction is computed: it is smooth, so it can be enlarged."""

_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Backdrop:
    """An image in the job's size that a result is blended into, at `repaint` only."""

    pixels: Pixels
    repaint: npt.NDArray[np.bool_]
    """(height, width)."""

    def under(self, image: Pixels) -> Pixels:
        return np.where(self.repaint[..., None], self._match_tones(image), self.pixels)

    def _match_tones(self, image: Pixels) -> Pixels:
        """Returns `image` with its tones matched to those around `repaint`."""
        height, width = self.repaint.shape
        scale = min(1.0, _SIDE / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        difference = _shrink(self.pixels, size) - _shrink(image, size)
        # Cells that are partly repainted would mix both sides.
        weights = (_shrink(self.repaint, size) == 0).astype(np.float32)
        weights *= (np.abs(difference).max(axis=2) < _MAX_TONE).astype(np.float32)
        correction = _propagate(difference, weights, max(1.0, _REACH * min(size)))
        return np.clip(image + cv2.resize(correction, (width, height)) + 0.5, 0, 255).astype(np.uint8)


def _shrink(values: npt.NDArray[np.uint8] | npt.NDArray[np.bool_], size: tuple[int, int]) -> _Floats:
    return np.asarray(cv2.resize(values.astype(np.float32), size, interpolation=cv2.INTER_AREA), np.float32)


def _propagate(values: _Floats, certainty: _Floats, reach: float) -> _Floats:
    """Extends `values` from where `certainty` is 1, fading within about `reach`.

    Normalised convolution (Knutsson and Westin, 1993), except for the fading, which the certainty causes.
    """
    weight = np.asarray(cv2.GaussianBlur(certainty, (0, 0), reach), np.float32)
    blurred = np.asarray(cv2.GaussianBlur(values * certainty[..., None], (0, 0), reach), np.float32)
    # At a straight border half of the window is known, and the correction is complete.
    gain = np.minimum(1.0, 2 * weight) / np.maximum(weight, 1e-6)
    return np.asarray(blurred * gain[..., None], np.float32)


_TWO_TONES_REACH: Final = 2
"""Pixels on either side of an edge in which its two colours are found."""
_DIAMETER, _SIGMA_COLOUR, _SIGMA_SPACE = 15, 25.0, 8.0
"""Bilateral filter: evens out colours within about 25 levels of 255 and 8 pixels."""
_CONTRAST: Final = 40.0
"""Levels of 255 between two colours with an edge between them; from twice as many on it is certain."""
_TWO_TONES_SIDE: Final = 0.25
"""Share of the way from one colour to the other that counts as that colour."""
_THIRD_COLOUR: Final = 40.0
"""Levels from the line up to which a pixel is corrected; from twice as many on it is a third colour."""
_POWER_ITERATIONS: Final = 4
"""Enough, as two different colours vary in one direction only."""


def flatten_to_two_tones(pixels: Pixels) -> Pixels:
    """Returns (H, W, 3) RGB with even areas, and edges that are mixtures of two colours."""
    even = cv2.bilateralFilter(pixels, _DIAMETER, _SIGMA_COLOUR, _SIGMA_SPACE)
    window = np.ones((2 * _TWO_TONES_REACH + 1, 2 * _TWO_TONES_REACH + 1), np.uint8)
    contrast = cv2.subtract(cv2.dilate(even, window), cv2.erode(even, window)).max(axis=2)
    at = np.nonzero(contrast > _CONTRAST / 2)
    if not len(at[0]):
        return np.asarray(even, np.uint8)
    around = cv2.copyMakeBorder(
        even, _TWO_TONES_REACH, _TWO_TONES_REACH, _TWO_TONES_REACH, _TWO_TONES_REACH, cv2.BORDER_REPLICATE
    ).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(around, window.shape, axis=(0, 1))[at]
    result = np.array(even, np.uint8)
    result[at] = _project_to_line(result[at].astype(np.float32), windows.reshape(len(windows), 3, -1)) + 0.5
    return result


def _project_to_line(colours: NDArray[np.float32], windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Moves colours (N, 3) to the line between the two that differ most among their neighbours (N, 3, K)."""
    along = np.einsum("nik,ni->nk", windows, _direction(windows))
    low, high = along.min(axis=1, keepdims=True), along.max(axis=1, keepdims=True)
    near = _TWO_TONES_SIDE * (high - low)
    first, second = _mean(windows, along <= low + near), _mean(windows, along >= high - near)
    line = second - first
    square = np.square(line).sum(axis=1, keepdims=True)
    position = ((colours - first) * line).sum(axis=1, keepdims=True) / np.maximum(square, 1)
    moves = first + position.clip(0, 1) * line - colours
    distance = np.sqrt(np.square(moves).sum(axis=1, keepdims=True))
    certain = (np.sqrt(square) / _CONTRAST - 1).clip(0, 1) * (2 - distance / _THIRD_COLOUR).clip(0, 1)
    return colours + certain * moves


def _direction(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns unit vectors (N, 3) along which the colours (N, 3, K) vary most; 0 for equal colours."""
    centred = windows - windows.mean(axis=2, keepdims=True)
    covariance = np.einsum("nik,njk->nij", centred, centred)
    variances = np.einsum("nii->ni", covariance)
    covariance /= np.maximum(variances.sum(axis=1), 1e-6)[:, None, None]  # keeps its powers in a float's range
    direction = covariance[np.arange(len(covariance)), variances.argmax(axis=1)]
    for _ in range(_POWER_ITERATIONS):
        direction = np.einsum("nij,nj->ni", covariance, direction)
    return direction / np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-6)


def _mean(windows: NDArray[np.float32], selection: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Returns the means (N, 3) of the colours (N, 3, K) in `selection` (N, K), which has at least one each."""
    return np.einsum("nik,nk->ni", windows, selection.astype(np.float32)) / selection.sum(axis=1, keepdims=True)


_WINDOW = np.ones((5, 5), np.uint8)
"""Neighbourhood with the two colours of an edge: as wide as an edge that was enlarged once."""
_NEIGHBOURS = np.ones((3, 3), np.uint8)
_DECODED_GAIN, _ENLARGED_GAIN = 1.5, 2.0
"""Factors by which edges get steeper: edges of decoders are a little soft, and enlarging by 2 doubles their width.

A higher first gain would leave stairs, as edges narrower than a pixel can't lie between two pixels.
"""
_GRADIENT = 24
"""Levels of 255 up to which differences within a window are shading, not edges."""


def on_white(pixels: Pixels) -> Pixels:
    """Blends (H, W, 4) with white to (H, W, 3)."""
    alpha = pixels[..., 3:] / 255
    return (pixels[..., :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)


def fit(pixels: Pixels, width: int, height: int, enlarge: Enlarge) -> Pixels:
    """Resizes to `width` x `height`, sharply only if it grows. Returns the same array if it has that size."""
    rows, columns = pixels.shape[:2]
    grows = width > columns or height > rows
    return enlarge_sharp(pixels, width, height) if enlarge == "sharp" and grows else resize(pixels, width, height)


def enlarge_sharp(pixels: Pixels, width: int, height: int) -> Pixels:
    """Enlarges to `width` x `height` with crisp edges. Shrinks smaller sides first."""
    rows, columns = min(pixels.shape[0], height), min(pixels.shape[1], width)
    pixels = _steepen(flatten_to_two_tones(resize(pixels, columns, rows)), _DECODED_GAIN)
    steps = math.ceil(math.log2(max(width / columns, height / rows)))
    for step in range(1, steps + 1):
        fraction = step / steps
        size = round(columns * (width / columns) ** fraction), round(rows * (height / rows) ** fraction)
        pixels = _steepen(_enlarge_cubic(pixels, size), _ENLARGED_GAIN)
    return pixels


def _enlarge_cubic(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Enlarges to `size`, (width, height), by cubic interpolation within the range of neighbouring colours: steepened
    overshoots would become rims."""
    low, high = (
        cv2.resize(extreme(pixels, _NEIGHBOURS), size, interpolation=cv2.INTER_LINEAR)
        for extreme in (cv2.erode, cv2.dilate)
    )
    return _clip(cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC), low, high)


def _steepen(pixels: Pixels, gain: float) -> Pixels:
    """Moves every channel away from the middle of its range in the window, but not beyond that range.

    Differences up to _GRADIENT stay; above, their excess limits the move, so that there is no seam.
    """
    low, high = cv2.erode(pixels, _WINDOW), cv2.dilate(pixels, _WINDOW)
    middle = cv2.addWeighted(low, 0.5, high, 0.5, 0)
    limit = cv2.addWeighted(high, 1, low, -1, -_GRADIENT)  # saturates at 0
    steep = cv2.addWeighted(pixels, gain, middle, 1 - gain, 0)
    return _clip(steep, cv2.max(low, cv2.subtract(pixels, limit)), cv2.min(high, cv2.add(pixels, limit)))


def _clip(pixels: cv2.typing.MatLike, low: cv2.typing.MatLike, high: cv2.typing.MatLike) -> Pixels:
    return np.asarray(cv2.min(cv2.max(pixels, low), high), dtype=np.uint8)


def recompress(image: Pixels, crf: int) -> Pixels:
    """Returns an image (H, W, 3) after H.264 compression, without an odd last row or column. Raises VideoFileError."""
    height, width = (side // 2 * 2 for side in image.shape[:2])
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24"]
    # A frame that lasts a second, as in diffusers: x264 spends more bits on it than on one of 24.
    source = [*raw, "-s", f"{width}x{height}", "-r", "1", "-i", "pipe:0", "-vf", "scale=flags=bilinear"]
    codec = ["-c:v", "libx264", "-preset", "veryfast", "-crf", str(crf), "-threads", "1", "-pix_fmt", "yuv420p"]
    h264 = _run(np.ascontiguousarray(image[:height, :width]).tobytes(), *source, *codec, "-f", "h264", "pipe:1")
    rgb = _run(h264, "-f", "h264", "-i", "pipe:0", "-vf", "scale=flags=bilinear", *raw, "pipe:1")
    return np.frombuffer(bytearray(rgb), np.uint8).reshape(height, width, 3)


def _run(data: bytes, *arguments: str) -> bytes:
    process = subprocess.run(command(*arguments), input=data, capture_output=True, check=False)
    if process.returncode:
        raise VideoFileError(f"an image can't be compressed: {process.stderr.decode(errors='replace').strip()}")
    return process.stdout
