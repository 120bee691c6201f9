"""Decoding of clients' images: base64, formats, orientation, colour, limits.

Every image is decoded in full, and written anew without loss: turned upright, reduced to its first frame and to 8-bit
grey, RGB or RGBA in the colours of sRGB. Nothing that comes later meets a byte of what was sent. Call it in a process
that may be lost (`decoder_process.py`): whatever decodes hostile bytes may need all time and memory there is.
"""

from __future__ import annotations

import binascii
import io
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, cast

import pybase64
from PIL import Image, ImageChops, ImageCms, ImageOps, PngImagePlugin, UnidentifiedImageError

from serve_app.inputs.settings import IMAGES, ImageLimits


class Unreadable(ValueError):
    """What was sent is no file of the kind that is asked for. The message says why, fit for the client's eyes."""


_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_SPACE: Final = b" \t\r\n\v\f"


def check_length(characters: int, max_bytes: int) -> None:
    """Classifiers base64 before it is decoded, with room for line breaks. Raises Unreadable."""
    if characters > max_bytes * 1.4 + 1024:
        raise Unreadable("the file is too large")


def decode_base64(value: bytes, max_bytes: int) -> bytes:
    """Either alphabet, with or without padding and line breaks, or a `data:` URI. Raises Unreadable."""
    if value[:5].lower() == b"data:":
        head, comma, value = value.partition(b",")
        if not comma or not head.lower().endswith(b";base64"):
            raise Unreadable("the data: URI is not base64")
    check_length(len(value), max_bytes)
    try:
        return pybase64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    compact = value.translate(_TO_STANDARD, _SPACE).rstrip(b"=")
    try:
        return pybase64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise Unreadable("not valid base64") from None


MAX_PROFILE_BYTES: Final = 8 * 2**20
_SPACES: Final = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGB", "CMYK": "CMYK"}
"""What a profile for each mode is for."""
_ROUNDING: Final = 2
"""Of 255: profiles of sRGB by its many makers differ from each other by as much."""
_STEPS: Final = (0, 36, 73, 109, 146, 182, 219, 255)


def in_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """`image` is 8-bit grey, RGB, RGBA or CMYK. It comes back in the same mode, but CMYK as RGB; unchanged, to the
    pixel, where the profile is that of sRGB, is for another mode, or makes no sense."""
    if not profile or len(profile) > MAX_PROFILE_BYTES:
        return image
    try:
        its = ImageCms.getOpenProfile(io.BytesIO(profile))
        if cast(Any, its.profile).xcolor_space.strip() != _SPACES.get(image.mode):
            return image
        if image.mode == "RGBA":
            rgba = _convert(image.convert("RGB"), its)
            rgba.putalpha(image.getchannel("A"))
            return rgba
        return _convert(image, its)
    except (ImageCms.PyCMSError, OSError):
        return image


def _convert(image: Image.Image, its: ImageCms.ImageCmsProfile) -> Image.Image:
    grey = image.mode == "L"
    # Little CMS has no grey of sRGB's own; of neutral colours all channels are the same.
    to_srgb = ImageCms.buildTransform(its, ImageCms.createProfile("sRGB"), image.mode, "RGB")
    if image.mode != "CMYK":
        probe = _greys() if grey else _samples()
        after = cast(Image.Image, ImageCms.applyTransform(probe, to_srgb))
        if max(high for _, high in _extrema(ImageChops.difference(probe.convert("RGB"), after))) <= _ROUNDING:
            return image
    result = cast(Image.Image, ImageCms.applyTransform(image, to_srgb))
    return result.convert("L") if grey else result


def _greys() -> Image.Image:
    probe = Image.new("L", (256, 1))
    probe.putdata(range(256))
    return probe


def _samples() -> Image.Image:
    """Colours from all over the cube."""
    probe = Image.new("RGB", (len(_STEPS) ** 2, len(_STEPS)))
    probe.putdata(list(product(_STEPS, repeat=3)))
    return probe


def _extrema(image: Image.Image) -> list[tuple[int, int]]:
    return cast(list[tuple[int, int]], image.getextrema())


MAX_SCANS: Final = 100
MAX_PARTS: Final = 50_000
"""Segments of a JPEG, chunks of a PNG or a WebP."""
MAX_FRAMES: Final = 1000
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_RENDERING_CHUNKS: Final = frozenset((b"tRNS", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"fdAT"))
"""Ancillary chunks of a PNG that say how the image looks."""

_MARKER: Final = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
"""Within the pixels of a JPEG every other 0xff is followed by a zero, or restarts the decoder (d0 to d7)."""
_START, _END, _SCAN, _LONELY = 0xD8, 0xD9, 0xDA, 0x01


class TooMuchWork(ValueError):
    """The message says of what there is too much, fit for the client's eyes."""


def scans(data: bytes) -> int:
    """How often the pixels are drawn; 1 where it is no JPEG. Raises TooMuchWork, also for too many parts or frames."""
    if data[:2] == b"\xff\xd8":
        return _jpeg_scans(data)
    if data[:8] == _PNG:
        _check(_png_chunks(data), frame=b"fcTL")
    elif data[:4] == b"RIFF":
        _check(_webp_chunks(data), frame=b"ANMF")
    return 1


def without_text(data: bytes) -> bytes:
    """A PNG without ancillary chunks that say nothing of how it looks, or are broken: comments that a decoder would
    refuse for their size. Anything else as it is."""
    if data[:8] != _PNG:
        return data
    at, chunks = 8, [_PNG]
    while kind := data[at + 4 : at + 8]:
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        ancillary = kind[0] & 0x20
        broken = zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big")
        if not ancillary or (kind in _RENDERING_CHUNKS and not broken):
            chunks.append(data[at:end])
        at = end
        if kind == b"IEND":
            break
    return b"".join(chunks)


def _jpeg_scans(data: bytes) -> int:
    """Of the first image in the file: phones put further ones, and videos, behind it."""
    at, count, parts = 2, 0, 0
    while (marker := _MARKER.search(data, at)) is not None:
        kind, at = data[marker.start() + 1], marker.end()
        if kind == _END:
            break
        parts += 1
        count += kind == _SCAN
        if count > MAX_SCANS:
            raise TooMuchWork(f"the image has more than {MAX_SCANS} scans")
        if parts > MAX_PARTS:
            raise TooMuchWork(f"the file has more than {MAX_PARTS} parts")
        if kind not in (_START, _LONELY):
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return max(1, count)


def _png_chunks(data: bytes) -> Iterator[bytes]:
    """Their kinds. What follows the last one is not looked at by anybody."""
    at = 8
    while (kind := data[at + 4 : at + 8]) not in (b"", b"IEND"):
        yield kind
        at += 12 + int.from_bytes(data[at : at + 4], "big")


def _webp_chunks(data: bytes) -> Iterator[bytes]:
    at, end = 12, 8 + int.from_bytes(data[4:8], "little")
    while at < min(end, len(data)):
        yield data[at : at + 4]
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2


def _check(chunks: Iterator[bytes], *, frame: bytes) -> None:
    frames = 0
    for parts, kind in enumerate(chunks, 1):
        frames += kind == frame
        if parts > MAX_PARTS:
            raise TooMuchWork(f"the file has more than {MAX_PARTS} parts")
        if frames > MAX_FRAMES:
            raise TooMuchWork(f"the image has more than {MAX_FRAMES} frames")


_PLAIN_MODES: Final = frozenset({"L", "RGB", "RGBA"})
_WIDE_MODES: Final = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
_ORIENTATION_TAG: Final = 0x0112
_UPRIGHT: Final = 1

MAX_NARROWNESS: Final = 64
"""Longest side over shortest. Models enlarge an image to whole tokens, which a thin line would multiply."""
_FULL_SCANS: Final = 20
"""Of the largest image; smaller ones may have more."""
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
class InputImage:
    """A PNG of the service's own making; `width` and `height` are pixels of the upright image."""

    data: bytes = field(repr=False)
    width: int
    height: int
    has_alpha: bool
    content_type: str = "image/png"
    extension: str = "png"


def decode_image(value: bytes, limits: ImageLimits = IMAGES) -> InputImage:
    """The image in base64 (either alphabet, with or without padding and line breaks) or a `data:` URI.

    Raises Unreadable.
    """
    return read_image(decode_base64(value, limits.max_bytes), limits)


def read_image(data: bytes, limits: ImageLimits = IMAGES) -> InputImage:
    """The image in the bytes of a file. Raises Unreadable."""
    if len(data) > limits.max_bytes:
        raise Unreadable("the file is too large")
    try:
        scan_count = scans(data)
        with Image.open(io.BytesIO(without_text(data)), formats=("JPEG", "PNG", "WEBP")) as image:
            # The header is all that was read so far: an image over the limit is refused before it unfolds.
            if image.width * image.height > limits.max_pixels:
                raise Unreadable(f"the image is too large ({image.width}x{image.height} pixels)")
            if max(image.size) > MAX_NARROWNESS * min(image.size):
                raise Unreadable(f"the image is too narrow ({image.width}x{image.height} pixels)")
            if scan_count * image.width * image.height > _FULL_SCANS * limits.max_pixels:
                raise Unreadable(f"the image has too many scans for its size ({scan_count})")
            try:
                image.load()
            except OSError as error:
                if "truncated" not in str(error) or image.format != "JPEG":
                    raise
                return _encode_normalized(_decode_unterminated(data, scan_count))
            return _encode_normalized(image)
    except UnidentifiedImageError:
        name = next((name for begin, name in _OTHER_FORMATS if begin.match(data)), None)
        raise Unreadable(f"{name} is not supported" if name else "not an image, or a damaged one") from None
    except OSError as error:
        early = "truncated" in str(error)
        raise Unreadable("the file ends early" if early else "not an image, or a damaged one") from error
    except Unreadable:
        raise
    except TooMuchWork as problem:
        raise Unreadable(str(problem)) from None
    except MemoryError:
        raise Unreadable("the image takes too much memory to decode") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Unreadable("the image is too large") from None
    except Exception as error:
        # A decoder that is fed hostile bytes may raise anything; whatever it is, this is not an image to work with.
        raise Unreadable("not an image, or a damaged one") from error


def _decode_unterminated(data: bytes, scan_count: int) -> Image.Image:
    """A JPEG that lacks nothing but the marker of its end, as many do. Raises Unreadable where more is missing: then
    the last bytes that there are belong to rows further up."""
    whole, shorter = (_decode(part + _JPEG_END) for part in (data, data[: -max(2, min(64, len(data) // 100))]))
    difference = ImageChops.difference(whole.convert("RGB"), shorter.convert("RGB")).getbbox()
    last_row = (whole.height - 1) // _MCU * _MCU
    if scan_count == 1 and difference and difference[1] < last_row - _MCU // 4:  # colours are spread a little
        raise Unreadable("the file ends early")
    return whole


def _decode(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data), formats=("JPEG",))
    image.load()
    return image


_COLOUR_TYPES: Final = {"L": 0, "RGB": 2, "RGBA": 6}
_SAMPLED_ROWS: Final = 32
_WORTHWHILE: Final = 4
"""So many times smaller what is compressed has to be."""


def encode_png(image: Image.Image) -> InputImage:
    """`image` is 8-bit grey, RGB or RGBA, its colours those of sRGB: a profile that it may still carry is left out.

    Fast rather than small: without filters, and what hardly compresses, like photos, as it is.
    """
    pixels, row = memoryview(image.tobytes()), image.width * len(image.getbands())
    rows = [pixels[start : start + row] for start in range(0, len(pixels), row)]
    sample = b"".join(rows[:: -(-len(rows) // _SAMPLED_ROWS)])
    level = 1 if len(zlib.compress(sample, 1)) < len(sample) / _WORTHWHILE else 0
    header = struct.pack(">IIBBBBB", image.width, image.height, 8, _COLOUR_TYPES[image.mode], 0, 0, 0)
    scanlines = zlib.compress(b"".join(part for each in rows for part in (b"\0", each)), level)
    data = b"".join((_PNG, _chunk(b"IHDR", header), _chunk(b"IDAT", scanlines), _chunk(b"IEND", b"")))
    return InputImage(data, image.width, image.height, has_alpha=image.mode == "RGBA")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return b"".join((struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))))


def _encode_normalized(image: Image.Image) -> InputImage:
    upright = _upright(image)
    # What inks look like only their profile tells; all else is as well told after it was made plain.
    normal = upright if upright.mode == "CMYK" else _to_plain_mode(upright)
    return encode_png(_to_plain_mode(in_srgb(normal, image.info.get("icc_profile"))))


def _upright(image: Image.Image) -> Image.Image:
    """The image as a viewer shows it: turned as its EXIF says. Pillow believes XMP, too, which browsers don't."""
    for name in ("xmp", "XML:com.adobe.xmp"):
        image.info.pop(name, None)
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, _UPRIGHT)
    except Exception:
        # Damaged metadata does not spoil the image; viewers show it unturned.
        return image
    return image if orientation == _UPRIGHT else ImageOps.exif_transpose(image)


def _to_plain_mode(image: Image.Image) -> Image.Image:
    """The image in 8-bit grey, RGB or RGBA."""
    if image.mode in _WIDE_MODES:
        # A plain conversion clips: everything above 255 of 65535 would turn white.
        return image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if image.has_transparency_data:
        return image if image.mode == "RGBA" else image.convert("RGBA")
    if image.mode in _PLAIN_MODES:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")
