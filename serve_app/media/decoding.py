"""From the bytes of a client's file to a picture that is safe to work with.

Every picture is decoded in full, and written anew without loss: turned upright, reduced to its first frame and to 8-bit
grey, RGB or RGBA in the colours of sRGB. Nothing that comes later meets a byte of what was sent. Call it in a process
that may be lost (`decoder.py`): whatever decodes hostile bytes may need all time and memory there is.
"""

from __future__ import annotations

import io
import re
import zlib
from dataclasses import dataclass, field
from typing import Final

from PIL import Image, ImageChops, ImageOps, PngImagePlugin, UnidentifiedImageError

from serve_app.media.colours import MAX_PROFILE_BYTES, in_srgb
from serve_app.media.data_uri import Unreadable, decode_base64
from serve_app.media.limits import PICTURES, PictureLimits
from serve_app.media.picture_structure import TooMuchWork, scans, without_text

_PLAIN_MODES: Final = frozenset({"L", "RGB", "RGBA"})
_WIDE_MODES: Final = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
_ORIENTATION_TAG: Final = 0x0112
_UPRIGHT: Final = 1

MAX_NARROWNESS: Final = 64
"""Longest side over shortest. Models enlarge a picture to whole tokens, which a thin line would multiply."""
_FULL_SCANS: Final = 20
"""Of the largest picture; smaller ones may have more."""
_JPEG_END: Final = b"\xff\xd9"
_MCU: Final = 16
"""Most pixels per side of the blocks that a JPEG is written in."""
_OTHER_FORMATS: Final = (
    (re.compile(rb"GIF8"), "GIF"),
    (re.compile(rb"BM"), "BMP"),
    (re.compile(rb"II\*\0|MM\0\*"), "TIFF"),
    (re.compile(rb"....ftyp(heic|heix|heim|heis|hevc|mif1|msf1)", re.DOTALL), "HEIC"),
    (re.compile(rb"....ftypavi[fs]", re.DOTALL), "AVIF"),
    (re.compile(rb"\xff\x0a|\0\0\0\x0cJXL "), "JPEG XL"),
    (re.compile(rb"\0\0[\1\2]\0"), "ICO"),
    (re.compile(rb"%PDF"), "PDF"),
    (re.compile(rb"\s*<(\?xml|svg|!DOCTYPE svg)"), "SVG"),
)
"""What files of formats begin with that are not taken."""
# Text is left out before a PNG is opened; what may be large then is a profile of colours.
PngImagePlugin.MAX_TEXT_CHUNK = MAX_PROFILE_BYTES


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
        with Image.open(io.BytesIO(without_text(data)), formats=("JPEG", "PNG", "WEBP")) as image:
            # The header is all that was read so far: a picture over the limit is refused before it unfolds.
            if image.width * image.height > limits.max_pixels:
                raise Unreadable(f"the picture is too large ({image.width}x{image.height} pixels)")
            if max(image.size) > MAX_NARROWNESS * min(image.size):
                raise Unreadable(f"the picture is too narrow ({image.width}x{image.height} pixels)")
            if drawn * image.width * image.height > _FULL_SCANS * limits.max_pixels:
                raise Unreadable(f"the picture has too many scans for its size ({drawn})")
            try:
                image.load()
            except OSError as error:
                if "truncated" not in str(error) or image.format != "JPEG":
                    raise
                return _checked(_ended(data, drawn))
            return _checked(image)
    except UnidentifiedImageError:
        name = next((name for begin, name in _OTHER_FORMATS if begin.match(data)), None)
        raise Unreadable(f"{name} is not supported" if name else "not a picture, or a damaged one") from None
    except OSError as error:
        early = "truncated" in str(error)
        raise Unreadable("the file ends early" if early else "not a picture, or a damaged one") from error
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


def _ended(data: bytes, drawn: int) -> Image.Image:
    """A JPEG that lacks nothing but the marker of its end, as many do. Raises Unreadable where more is missing: then
    the last bytes that there are belong to rows further up."""
    whole, shorter = (_decoded(part + _JPEG_END) for part in (data, data[: -max(2, min(64, len(data) // 100))]))
    changed = ImageChops.difference(whole.convert("RGB"), shorter.convert("RGB")).getbbox()
    last_row = (whole.height - 1) // _MCU * _MCU
    if drawn == 1 and changed and changed[1] < last_row - _MCU // 4:  # colours are spread a little
        raise Unreadable("the file ends early")
    return whole


def _decoded(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data), formats=("JPEG",))
    image.load()
    return image


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
    """The picture as a viewer shows it: turned as its EXIF says. Pillow believes XMP, too, which browsers don't."""
    for name in ("xmp", "XML:com.adobe.xmp"):
        image.info.pop(name, None)
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
