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
from deployments.video.writer import VideoError, command

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""(height, width, 3), RGB, 0 to 255."""


def open_image(data: bytes) -> Image.Image:
    """Decodes to RGB, upright, transparent parts over white.

    Formats and sizes were checked when the image came in; JobError when it can't be read all the same.
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
    """To `size` as (height, width); the image itself when it has that size already."""
    target = (size[1], size[0])
    # Pillow's Lanczos averages where it shrinks: its support grows with the factor.
    return image if image.size == target else image.resize(target, Image.Resampling.LANCZOS)


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Exactly `width` x `height`; the same array when it has that size already.

    OpenCV's Lanczos skips pixels where it shrinks, so sides that are to be smaller are averaged first.
    """
    rows, columns = pixels.shape[:2]
    pixels = _resize_with(pixels, min(width, columns), min(height, rows), cv2.INTER_AREA)
    return _resize_with(pixels, width, height, cv2.INTER_LANCZOS4)


def _resize_with(pixels: Pixels, width: int, height: int, interpolation: int) -> Pixels:
    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=interpolation), dtype=np.uint8)


_REACH = 0.04
"""How far the correction reaches on either side of the border, as a share of the shorter side."""
_TONE = 40
"""Levels of 255. A pixel that is further off shows something else there, and says nothing of tones."""
_SIDE = 256
"""Longest side at which the correction is found: it is smooth, so it can be enlarged."""

_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Backdrop:
    """In the job's size. Outside `repaint` its pixels stay as they are."""

    pixels: Pixels
    repaint: npt.NDArray[np.bool_]
    """(height, width)."""

    def under(self, image: Pixels) -> Pixels:
        return np.where(self.repaint[..., None], self._match_tones(image), self.pixels)

    def _match_tones(self, image: Pixels) -> Pixels:
        """`image` in the tones of the image around it."""
        height, width = self.repaint.shape
        scale = min(1.0, _SIDE / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        off = _small(self.pixels, size) - _small(image, size)
        # Cells that are partly repainted would say something of both sides.
        weights = (_small(self.repaint, size) == 0).astype(np.float32)
        weights *= (np.abs(off).max(axis=2) < _TONE).astype(np.float32)
        correction = _propagate(off, weights, max(1.0, _REACH * min(size)))
        return np.clip(image + cv2.resize(correction, (width, height)) + 0.5, 0, 255).astype(np.uint8)


def _small(values: npt.NDArray[np.uint8] | npt.NDArray[np.bool_], size: tuple[int, int]) -> _Floats:
    return np.asarray(cv2.resize(values.astype(np.float32), size, interpolation=cv2.INTER_AREA), np.float32)


def _propagate(off: _Floats, certainty: _Floats, reach: float) -> _Floats:
    """`off` where `certainty` is 1, carried on to where it isn't, fading within some `reach` of it.

    Normalised convolution (Knutsson and Westin, 1993), but for the fading: the certainty limits how much is carried on.
    """
    weight = np.asarray(cv2.GaussianBlur(certainty, (0, 0), reach), np.float32)
    blurred = np.asarray(cv2.GaussianBlur(off * certainty[..., None], (0, 0), reach), np.float32)
    # At a straight border half of what the window sees is known: there the correction is whole.
    gain = np.minimum(1.0, 2 * weight) / np.maximum(weight, 1e-6)
    return np.asarray(blurred * gain[..., None], np.float32)


_TWO_TONES_REACH: Final = 2
"""Pixels to either side in which an edge has its two colours."""
_DIAMETER, _ALIKE, _NEAR = 15, 25.0, 8.0
"""What is evened out: colours that differ by less than about _ALIKE levels of 255, within about _NEAR pixels."""
_CONTRAST: Final = 40.0
"""Levels of 255 between two colours with an edge between them; from twice as many on it is certain."""
_TWO_TONES_SIDE: Final = 0.25
"""Share of the way from one colour to the other that counts as that colour."""
_THIRD: Final = 40.0
"""Distance from the line, in levels, up to which a pixel is mended; from twice as many on it is a colour by itself."""
_TURNS: Final = 4
"""Of the power iteration: two colours that differ have one direction, and one is found at once."""


def flatten_to_two_tones(pixels: Pixels) -> Pixels:
    """(H, W, 3) RGB to the same size, with even areas, and edges that are mixtures of two colours."""
    even = cv2.bilateralFilter(pixels, _DIAMETER, _ALIKE, _NEAR)
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
    """(N, 3) colours, each with the K colours around it, (N, 3, K), on the line between the two that differ most."""
    along = np.einsum("nik,ni->nk", windows, _direction(windows))
    least, most = along.min(axis=1, keepdims=True), along.max(axis=1, keepdims=True)
    near = _TWO_TONES_SIDE * (most - least)
    one, other = _mean(windows, along <= least + near), _mean(windows, along >= most - near)
    line = other - one
    square = np.square(line).sum(axis=1, keepdims=True)
    position = ((colours - one) * line).sum(axis=1, keepdims=True) / np.maximum(square, 1)
    moves = one + position.clip(0, 1) * line - colours
    distance = np.sqrt(np.square(moves).sum(axis=1, keepdims=True))
    certain = (np.sqrt(square) / _CONTRAST - 1).clip(0, 1) * (2 - distance / _THIRD).clip(0, 1)
    return colours + certain * moves


def _direction(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """(N, 3): along which the colours (N, 3, K) differ most, of length 1; 0 where they don't."""
    centred = windows - windows.mean(axis=2, keepdims=True)
    covariance = np.einsum("nik,njk->nij", centred, centred)
    variances = np.einsum("nii->ni", covariance)
    covariance /= np.maximum(variances.sum(axis=1), 1e-6)[:, None, None]  # powers of it stay within a float's range
    direction = covariance[np.arange(len(covariance)), variances.argmax(axis=1)]
    for _ in range(_TURNS):
        direction = np.einsum("nij,nj->ni", covariance, direction)
    return direction / np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-6)


def _mean(windows: NDArray[np.float32], selection: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(N, 3): of the chosen (N, K) among the colours (N, 3, K), at least one each."""
    return np.einsum("nik,nk->ni", windows, selection.astype(np.float32)) / selection.sum(axis=1, keepdims=True)


_WINDOW = np.ones((5, 5), np.uint8)
"""Where a pixel looks for the two colours of its edge: as far as an edge reaches that was enlarged once."""
_NEIGHBOURS = np.ones((3, 3), np.uint8)
_DECODED_GAIN, _ENLARGED_GAIN = 1.5, 2.0
"""How much steeper edges get: those of decoders are a little soft, and enlarging by 2 makes edges twice as wide.

A first gain of more would leave stairs, as edges narrower than a pixel can't say where between two pixels they are.
"""
_GRADIENT = 24
"""Levels of 255. Differences up to this within a window are shading, not edges."""


def on_white(pixels: Pixels) -> Pixels:
    """(H, W, 4) to (H, W, 3): what is transparent is white."""
    alpha = pixels[..., 3:] / 255
    return (pixels[..., :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)


def fit(pixels: Pixels, width: int, height: int, enlarge: Enlarge) -> Pixels:
    """Exactly `width` x `height`; the same array when it has that size already. Never sharpened when not enlarged."""
    rows, columns = pixels.shape[:2]
    grows = width > columns or height > rows
    return enlarge_sharp(pixels, width, height) if enlarge == "sharp" and grows else resize(pixels, width, height)


def enlarge_sharp(pixels: Pixels, width: int, height: int) -> Pixels:
    """`pixels` at `width` x `height`, its edges crisp. Sides that are to be smaller are shrunk first."""
    rows, columns = min(pixels.shape[0], height), min(pixels.shape[1], width)
    pixels = _steepen(flatten_to_two_tones(resize(pixels, columns, rows)), _DECODED_GAIN)
    steps = math.ceil(math.log2(max(width / columns, height / rows)))
    for step in range(1, steps + 1):
        fraction = step / steps
        size = round(columns * (width / columns) ** fraction), round(rows * (height / rows) ** fraction)
        pixels = _steepen(_enlarge_cubic(pixels, size), _ENLARGED_GAIN)
    return pixels


def _enlarge_cubic(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """To `size` as (width, height), cubic, but never beyond the colours around: steepened, overshoots become rims."""
    low, high = (
        cv2.resize(extreme(pixels, _NEIGHBOURS), size, interpolation=cv2.INTER_LINEAR)
        for extreme in (cv2.erode, cv2.dilate)
    )
    return _clip(cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC), low, high)


def _steepen(pixels: Pixels, gain: float) -> Pixels:
    """Moves every channel away from the middle between its extremes in the window, and not beyond these.

    What differs by no more than _GRADIENT stays; above, the move is limited by how much more it is, so that there is
    no seam between the two.
    """
    low, high = cv2.erode(pixels, _WINDOW), cv2.dilate(pixels, _WINDOW)
    middle = cv2.addWeighted(low, 0.5, high, 0.5, 0)
    limit = cv2.addWeighted(high, 1, low, -1, -_GRADIENT)  # saturates at 0
    steep = cv2.addWeighted(pixels, gain, middle, 1 - gain, 0)
    return _clip(steep, cv2.max(low, cv2.subtract(pixels, limit)), cv2.min(high, cv2.add(pixels, limit)))


def _clip(pixels: cv2.typing.MatLike, low: cv2.typing.MatLike, high: cv2.typing.MatLike) -> Pixels:
    return np.asarray(cv2.min(cv2.max(pixels, low), high), dtype=np.uint8)


def recompress(image: Pixels, crf: int) -> Pixels:
    """What is left of an image (H, W, 3), without the last of an odd number of rows or columns. Raises VideoError."""
    height, width = (side // 2 * 2 for side in image.shape[:2])
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24"]
    # A frame that lasts a second, for which x264 takes more bits than for one of 24: so does diffusers.
    source = [*raw, "-s", f"{width}x{height}", "-r", "1", "-i", "pipe:0", "-vf", "scale=flags=bilinear"]
    codec = ["-c:v", "libx264", "-preset", "veryfast", "-crf", str(crf), "-threads", "1", "-pix_fmt", "yuv420p"]
    h264 = _run(np.ascontiguousarray(image[:height, :width]).tobytes(), *source, *codec, "-f", "h264", "pipe:1")
    rgb = _run(h264, "-f", "h264", "-i", "pipe:0", "-vf", "scale=flags=bilinear", *raw, "pipe:1")
    return np.frombuffer(bytearray(rgb), np.uint8).reshape(height, width, 3)


def _run(data: bytes, *arguments: str) -> bytes:
    process = subprocess.run(command(*arguments), input=data, capture_output=True, check=False)
    if process.returncode:
        raise VideoError(f"an image can't be compressed: {process.stderr.decode(errors='replace').strip()}")
    return process.stdout
