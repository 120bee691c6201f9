"""From the bytes of a client's file to a picture that is safe to work with.

Every picture is decoded in full, and written anew without loss: turned upright, reduced to its first frame and to 8-bit
grey, RGB or RGBA in the colours of sRGB. Nothing that comes later meets a byte of what was sent. Call it in a process
that may be lost (`decoder.py`): whatever decodes hostile bytes may need all time and memory there is.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass, field
from typing import Final

from PIL import Image, ImageOps

from serve_app.media.colours import in_srgb
from serve_app.media.data_uri import Unreadable, decode_base64
from serve_app.media.limits import PICTURES, PictureLimits
from serve_app.media.picture_structure import TooMuchWork, scans

_PLAIN_MODES: Final = frozenset({"L", "RGB", "RGBA"})
_WIDE_MODES: Final = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
_ORIENTATION_TAG: Final = 0x0112
_UPRIGHT: Final = 1

MAX_NARROWNESS: Final = 64
"""Longest side over shortest. Models enlarge a picture to whole tokens, which a thin line would multiply."""
_FULL_SCANS: Final = 20
"""Of the largest picture; smaller ones may have more."""


@dataclass(frozen=True, slots=True)
class InputPicture:
    """A PNG of the service's own making; `width` and `height` are pixels of the upright picture."""

    data: bytes = field(repr=False)
    width: int
    height: int
    has_alpha: bool
    content_type: str = "image/png"
    extension: str = "png"


def decode_image(value: bytes, limits: PictureLimits = PICTURES) -> InputPicture:
    """The picture in base64 (either alphabet, with or without padding and line breaks) or a `data:` URI.

    Raises Unreadable.
    """
    return read_image(decode_base64(value, limits.max_bytes), limits)


def read_image(data: bytes, limits: PictureLimits = PICTURES) -> InputPicture:
    """The picture in the bytes of a file. Raises Unreadable."""
    if len(data) > limits.max_bytes:
        raise Unreadable("the file is too large")
    try:
        drawn = scans(data)
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            # The header is all that was read so far: a picture over the limit is refused before it unfolds.
            if image.width * image.height > limits.max_pixels:
                raise Unreadable(f"the picture is too large ({image.width}x{image.height} pixels)")
            if max(image.size) > MAX_NARROWNESS * min(image.size):
                raise Unreadable(f"the picture is too narrow ({image.width}x{image.height} pixels)")
            if drawn * image.width * image.height > _FULL_SCANS * limits.max_pixels:
                raise Unreadable(f"the picture has too many scans for its size ({drawn})")
            image.load()
            return _checked(image)
    except Unreadable:
        raise
    except TooMuchWork as problem:
        raise Unreadable(str(problem)) from None
    except MemoryError:
        raise Unreadable("the picture takes too much memory to decode") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable("the picture is too large") from None
    except Exception as error:
        # A decoder that is fed hostile bytes may raise anything; whatever it is, this is not a picture to work with.
        raise Unreadable("not a picture, or a damaged one") from error


def written(image: Image.Image) -> InputPicture:
    """`image` is 8-bit grey, RGB or RGBA, its colours those of sRGB: a profile that it may still carry is left out.

    Fast rather than small.
    """
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1, compress_type=zlib.Z_RLE, icc_profile=None)
    return InputPicture(buffer.getvalue(), image.width, image.height, has_alpha=image.mode == "RGBA")


def _checked(image: Image.Image) -> InputPicture:
    upright = _upright(image)
    # What inks look like only their profile tells; all else is as well told after it was made plain.
    normal = upright if upright.mode == "CMYK" else _normalised(upright)
    return written(_normalised(in_srgb(normal, image.info.get("icc_profile"))))


def _upright(image: Image.Image) -> Image.Image:
    """The picture as a viewer shows it."""
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, _UPRIGHT)
    except Exception:
        # Damaged metadata does not spoil the picture; viewers show it unturned.
        return image
    return image if orientation == _UPRIGHT else ImageOps.exif_transpose(image)


def _normalised(image: Image.Image) -> Image.Image:
    """The picture in 8-bit grey, RGB or RGBA."""
    if image.mode in _WIDE_MODES:
        # A plain conversion clips: everything above 255 of 65535 would turn white.
        return image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if image.has_transparency_data:
        return image if image.mode == "RGBA" else image.convert("RGBA")
    if image.mode in _PLAIN_MODES:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")
