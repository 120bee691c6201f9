"""The one gate for pictures that clients send: base64, a `data:` URI or an http(s) URL in, a checked picture out.

Every picture is decoded in full before it is accepted, so no model ever meets a broken one. The client's own bytes are
kept where they are fine as they are; else the picture is turned upright, reduced to its first frame and to 8-bit grey,
RGB or RGBA, and stored as PNG.
"""

from __future__ import annotations

import asyncio
import io
import zlib
from dataclasses import dataclass, field
from typing import Final

from PIL import Image, ImageOps

from serve_app.media.fetching import Fetcher, decode_base64, is_url
from serve_app.media.geometry import MEGAPIXEL

_TYPES: Final = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png", "WEBP": "webp"}
"""Pillow's formats to extensions. MPO is a JPEG that carries further frames, as phones write it."""

_PLAIN_MODES: Final = frozenset({"L", "RGB", "RGBA"})
_WIDE_MODES: Final = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
_ORIENTATION_TAG: Final = 0x0112
_UPRIGHT: Final = 1


class BadPicture(ValueError):
    """Not a picture the service takes. The message tells the client what was wrong and what would be accepted."""


@dataclass(frozen=True, slots=True)
class InputLimits:
    """`max_bytes` counts the decoded file; `timeout_s` is the whole time a URL may take, redirects included."""

    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 20 * MEGAPIXEL
    max_redirects: int = 3
    timeout_s: float = 10.0

    def refuse(self, problem: str) -> BadPicture:
        """The error for `problem`, with what would be accepted instead."""
        return BadPicture(
            f"{problem}; expected a JPEG, PNG or WebP picture as base64, a data: URI or an http(s) URL, "
            f"at most {self.max_bytes / 2**20:g} MB and {self.max_pixels / MEGAPIXEL:g} megapixels"
        )


DEFAULT_LIMITS: Final = InputLimits()


@dataclass(frozen=True, slots=True)
class InputPicture:
    """A picture that decodes in full; `width` and `height` are pixels of the upright picture."""

    data: bytes = field(repr=False)
    content_type: str
    extension: str
    width: int
    height: int
    has_alpha: bool


async def load_picture(value: str, fetcher: Fetcher, limits: InputLimits = DEFAULT_LIMITS) -> InputPicture:
    """The picture behind `value`, base64, `data:` URI or URL. Decoding runs in a thread.

    Raises BadPicture, or TooManyFetches.
    """
    value = value.strip()
    if is_url(value):
        return await asyncio.to_thread(read_image, await fetcher.fetch(value, limits), limits)
    return await asyncio.to_thread(decode_image, value, limits)


def decode_image(value: str, limits: InputLimits = DEFAULT_LIMITS) -> InputPicture:
    """The picture in base64 (either alphabet, with or without padding and line breaks) or a `data:` URI.

    Raises BadPicture.
    """
    return read_image(decode_base64(value, limits), limits)


MAX_NARROWNESS: Final = 64
"""Longest side over shortest. Models enlarge a picture to whole tokens, which a thin line would multiply."""


def read_image(data: bytes, limits: InputLimits = DEFAULT_LIMITS) -> InputPicture:
    """The picture in the bytes of a file. Raises BadPicture."""
    if len(data) > limits.max_bytes:
        raise limits.refuse("the file is too large")
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            # The header is all that was read so far: a picture over the limit is refused before it unfolds.
            if image.width * image.height > limits.max_pixels:
                raise limits.refuse(f"the picture is too large ({image.width}x{image.height} pixels)")
            if max(image.size) > MAX_NARROWNESS * min(image.size):
                raise limits.refuse(f"the picture is too narrow ({image.width}x{image.height} pixels)")
            image.load()
            return _checked(image, data)
    except BadPicture:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise limits.refuse("the picture is too large") from None
    except Exception as error:
        # A decoder that is fed hostile bytes may raise anything; whatever it is, this is not a picture to work with.
        raise limits.refuse("not a picture, or a damaged one") from error


def _checked(image: Image.Image, data: bytes) -> InputPicture:
    extension = _TYPES[image.format or ""]
    single = getattr(image, "n_frames", 1) == 1
    normal = _normalised(_upright(image))
    if normal is not image or not single:
        data, extension = _as_png(normal, keep_profile=normal.mode == image.mode), "png"
    return InputPicture(
        data=data,
        content_type=f"image/{extension}",
        extension=extension,
        width=normal.width,
        height=normal.height,
        has_alpha=normal.mode == "RGBA",
    )


def _upright(image: Image.Image) -> Image.Image:
    """The picture as a viewer shows it; the very same object when it needs no turning."""
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, _UPRIGHT)
    except Exception:
        # Damaged metadata does not spoil the picture; viewers show it unturned.
        return image
    return image if orientation == _UPRIGHT else ImageOps.exif_transpose(image)


def _normalised(image: Image.Image) -> Image.Image:
    """The picture in 8-bit grey, RGB or RGBA; the very same object when it is so already."""
    if image.mode in _WIDE_MODES:
        # A plain conversion clips: everything above 255 of 65535 would turn white.
        return image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if image.has_transparency_data:
        return image if image.mode == "RGBA" else image.convert("RGBA")
    if image.mode in _PLAIN_MODES:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _as_png(image: Image.Image, *, keep_profile: bool) -> bytes:
    """Fast rather than small. A colour profile made for another mode is dropped: it would spoil the colours."""
    buffer = io.BytesIO()
    profile = image.info.get("icc_profile") if keep_profile else None
    image.save(buffer, "PNG", compress_level=1, compress_type=zlib.Z_RLE, icc_profile=profile)
    return buffer.getvalue()
