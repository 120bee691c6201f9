"""Decoder of clients' images: base64, formats, orientation, colour, limits.

Every image is decoded in full and encoded again without loss: turned upright, reduced to its first frame and to 8-bit
grey, RGB or RGBA in sRGB. No later step reads a byte that a client sent. Call it in a process that may be lost
(`decoder_process.py`): hostile files may take any amount of time and memory.
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


class InvalidFile(ValueError):
    """The file is not of the expected type. Clients may read the message."""


_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_SPACE: Final = b" \t\r\n\v\f"


def check_length(characters: int, max_bytes: int) -> None:
    """Rejects base64 that is too long before it is decoded, with an allowance for line breaks. Raises InvalidFile."""
    if characters > max_bytes * 1.4 + 1024:
        raise InvalidFile("the file is too large")


def decode_base64(value: bytes, max_bytes: int) -> bytes:
    """Decodes base64 of either alphabet, with or without padding and line breaks, or a `data:` URI.

    Raises InvalidFile.
    """
    if value[:5].lower() == b"data:":
        head, comma, value = value.partition(b",")
        if not comma or not head.lower().endswith(b";base64"):
            raise InvalidFile("the data: URI is not base64")
    check_length(len(value), max_bytes)
    try:
        return pybase64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    compact = value.translate(_TO_STANDARD, _SPACE).rstrip(b"=")
    try:
        return pybase64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidFile("not valid base64") from None


MAX_PROFILE_BYTES: Final = 8 * 2**20
_COLOUR_SPACES: Final = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGB", "CMYK": "CMYK"}
"""Colour space of a profile by mode of its image."""
_ROUNDING: Final = 2
"""Levels of 255 by which sRGB profiles of different vendors differ."""
_STEPS: Final = (0, 36, 73, 109, 146, 182, 219, 255)


def convert_to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Converts 8-bit grey, RGB, RGBA or CMYK; CMYK becomes RGB.

    The pixels stay unchanged if the profile is sRGB's, of another mode, or invalid.
    """
    if not profile or len(profile) > MAX_PROFILE_BYTES:
        return image
    try:
        source = ImageCms.getOpenProfile(io.BytesIO(profile))
        if cast(Any, source.profile).xcolor_space.strip() != _COLOUR_SPACES.get(image.mode):
            return image
        if image.mode == "RGBA":
            rgba = _convert(image.convert("RGB"), source)
            rgba.putalpha(image.getchannel("A"))
            return rgba
        return _convert(image, source)
    except (ImageCms.PyCMSError, OSError):
        return image


def _convert(image: Image.Image, source: ImageCms.ImageCmsProfile) -> Image.Image:
    is_grey = image.mode == "L"
    # Little CMS has no grey sRGB profile; of neutral colours all channels are equal.
    to_srgb = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), image.mode, "RGB")
    if image.mode != "CMYK":
        samples = _sample_colours(is_grey)
        converted = cast(Image.Image, ImageCms.applyTransform(samples, to_srgb))
        difference = ImageChops.difference(samples.convert("RGB"), converted).getextrema()
        if max(high for _, high in cast(list[tuple[int, int]], difference)) <= _ROUNDING:
            return image
    result = cast(Image.Image, ImageCms.applyTransform(image, to_srgb))
    return result.convert("L") if is_grey else result


def _sample_colours(is_grey: bool) -> Image.Image:
    """Returns all greys, or colours from all over the RGB cube."""
    samples = Image.new("L", (256, 1)) if is_grey else Image.new("RGB", (len(_STEPS) ** 2, len(_STEPS)))
    samples.putdata(range(256) if is_grey else list(product(_STEPS, repeat=3)))
    return samples


MAX_SCANS: Final = 100
MAX_PARTS: Final = 50_000
"""Maximum of segments of a JPEG or chunks of a PNG or WebP."""
MAX_FRAMES: Final = 1000
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_RENDERING_CHUNKS: Final = frozenset((b"tRNS", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"fdAT"))
"""Ancillary chunks of a PNG that change how the image looks."""

_MARKER: Final = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
"""Marker of a segment. In a JPEG's pixels, 0xff comes before a zero or one of the restart markers d0 to d7."""
_START, _END, _SCAN, _TEMPORARY = 0xD8, 0xD9, 0xDA, 0x01


def count_scans(data: bytes) -> int:
    """Returns how many scans a JPEG has; 1 for other formats.

    Raises InvalidFile for too many scans, parts or frames.
    """
    if data[:2] == b"\xff\xd8":
        return _count_jpeg_scans(data)
    if data[:8] == _PNG:
        _check_chunks(_png_chunks(data), frame=b"fcTL")
    elif data[:4] == b"RIFF":
        _check_chunks(_webp_chunks(data), frame=b"ANMF")
    return 1


def _strip_metadata(data: bytes) -> bytes:
    """Removes ancillary chunks of a PNG that are broken or do not change how it looks.

    Pillow would refuse large comments. Other formats stay unchanged.
    """
    if data[:8] != _PNG:
        return data
    at, chunks = 8, [_PNG]
    while chunk_type := data[at + 4 : at + 8]:
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        is_ancillary = chunk_type[0] & 0x20
        is_broken = zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big")
        if not is_ancillary or (chunk_type in _RENDERING_CHUNKS and not is_broken):
            chunks.append(data[at:end])
        at = end
        if chunk_type == b"IEND":
            break
    return b"".join(chunks)


def _count_jpeg_scans(data: bytes) -> int:
    """Counts the scans of the first image in the file. Phones append further images and videos."""
    at, count, parts = 2, 0, 0
    while (marker := _MARKER.search(data, at)) is not None:
        segment_type, at = data[marker.start() + 1], marker.end()
        if segment_type == _END:
            break
        parts += 1
        count += segment_type == _SCAN
        if count > MAX_SCANS:
            raise InvalidFile(f"the image has more than {MAX_SCANS} scans")
        if parts > MAX_PARTS:
            raise InvalidFile(f"the file has more than {MAX_PARTS} parts")
        if segment_type not in (_START, _TEMPORARY):
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return max(1, count)


def _png_chunks(data: bytes) -> Iterator[bytes]:
    """Yields the types of the chunks up to the last one, IEND. Decoders ignore the bytes behind it."""
    at = 8
    while (chunk_type := data[at + 4 : at + 8]) not in (b"", b"IEND"):
        yield chunk_type
        at += 12 + int.from_bytes(data[at : at + 4], "big")


def _webp_chunks(data: bytes) -> Iterator[bytes]:
    at, end = 12, 8 + int.from_bytes(data[4:8], "little")
    while at < min(end, len(data)):
        yield data[at : at + 4]
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2


def _check_chunks(chunk_types: Iterator[bytes], *, frame: bytes) -> None:
    frames = 0
    for parts, chunk_type in enumerate(chunk_types, 1):
        frames += chunk_type == frame
        if parts > MAX_PARTS:
            raise InvalidFile(f"the file has more than {MAX_PARTS} parts")
        if frames > MAX_FRAMES:
            raise InvalidFile(f"the image has more than {MAX_FRAMES} frames")


_PLAIN_MODES: Final = frozenset({"L", "RGB", "RGBA"})
_WIDE_MODES: Final = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
_ORIENTATION_TAG: Final = 0x0112
_UPRIGHT: Final = 1

MAX_NARROWNESS: Final = 64
"""Maximum ratio of the longest side to the shortest. Models round sides up to whole tokens, which would multiply the
area of a thin line."""
_FULL_SCANS: Final = 20
"""Maximum of scans of the largest image; smaller ones may have more."""
_JPEG_END: Final = b"\xff\xd9"
_MCU: Final = 16
"""Maximum side of a JPEG's blocks, pixels."""
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
"""First bytes of formats that are not supported."""
# `_strip_metadata` removes a PNG's text; what may be large then is a colour profile.
PngImagePlugin.MAX_TEXT_CHUNK = MAX_PROFILE_BYTES


@dataclass(frozen=True, slots=True)
class InputImage:
    """PNG that the service encoded; `width` and `height` are pixels of the upright image."""

    data: bytes = field(repr=False)
    width: int
    height: int
    has_alpha: bool
    content_type: str = "image/png"
    extension: str = "png"


def decode_image(value: bytes, limits: ImageLimits = IMAGES) -> InputImage:
    """Decodes an image in base64 or a `data:` URI. Raises InvalidFile."""
    return read_image(decode_base64(value, limits.max_bytes), limits)


def read_image(data: bytes, limits: ImageLimits = IMAGES) -> InputImage:
    """Decodes the image in the bytes of a file. Raises InvalidFile."""
    if len(data) > limits.max_bytes:
        raise InvalidFile("the file is too large")
    try:
        scan_count = count_scans(data)
        with Image.open(io.BytesIO(_strip_metadata(data)), formats=("JPEG", "PNG", "WEBP")) as image:
            # Only the header was read so far: an image over the limit is refused before it is decompressed.
            if image.width * image.height > limits.max_pixels:
                raise InvalidFile(f"the image is too large ({image.width}x{image.height} pixels)")
            if max(image.size) > MAX_NARROWNESS * min(image.size):
                raise InvalidFile(f"the image is too narrow ({image.width}x{image.height} pixels)")
            if scan_count * image.width * image.height > _FULL_SCANS * limits.max_pixels:
                raise InvalidFile(f"the image has too many scans for its size ({scan_count})")
            try:
                image.load()
            except OSError as error:
                if "truncated" not in str(error) or image.format != "JPEG":
                    raise
                return _encode_normalized(_decode_unterminated(data, scan_count))
            return _encode_normalized(image)
    except UnidentifiedImageError:
        name = next((name for pattern, name in _OTHER_FORMATS if pattern.match(data)), None)
        raise InvalidFile(f"{name} is not supported" if name else "not an image, or a damaged one") from None
    except OSError as error:
        early = "truncated" in str(error)
        raise InvalidFile("the file ends early" if early else "not an image, or a damaged one") from error
    except InvalidFile:
        raise
    except MemoryError:
        raise InvalidFile("the image takes too much memory to decode") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InvalidFile("the image is too large") from None
    except Exception as error:
        # A decoder may raise anything for hostile bytes.
        raise InvalidFile("not an image, or a damaged one") from error


def _decode_unterminated(data: bytes, scan_count: int) -> Image.Image:
    """Decodes a JPEG that lacks only its end marker, as many do. Raises InvalidFile if pixels are missing.

    Then the last bytes of the file do not belong to the last row of blocks.
    """
    whole, shorter = (_decode_jpeg(part + _JPEG_END) for part in (data, data[: -max(2, min(64, len(data) // 100))]))
    difference = ImageChops.difference(whole.convert("RGB"), shorter.convert("RGB")).getbbox()
    last_row = (whole.height - 1) // _MCU * _MCU
    if scan_count == 1 and difference and difference[1] < last_row - _MCU // 4:  # upsampled colours spread a little
        raise InvalidFile("the file ends early")
    return whole


def _decode_jpeg(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data), formats=("JPEG",))
    image.load()
    return image


_COLOUR_TYPES: Final = {"L": 0, "RGB": 2, "RGBA": 6}
_SAMPLED_ROWS: Final = 32
_MIN_COMPRESSION: Final = 4
"""Minimum factor by which compression must shrink an image."""


def encode_png(image: Image.Image) -> InputImage:
    """Encodes 8-bit grey, RGB or RGBA in sRGB, without a profile.

    Fast rather than small: without filters, and uncompressed if the image hardly compresses, like photos.
    """
    pixels, row = memoryview(image.tobytes()), image.width * len(image.getbands())
    rows = [pixels[start : start + row] for start in range(0, len(pixels), row)]
    sample = b"".join(rows[:: -(-len(rows) // _SAMPLED_ROWS)])
    level = 1 if len(zlib.compress(sample, 1)) < len(sample) / _MIN_COMPRESSION else 0
    header = struct.pack(">IIBBBBB", image.width, image.height, 8, _COLOUR_TYPES[image.mode], 0, 0, 0)
    scanlines = zlib.compress(b"".join(part for each in rows for part in (b"\0", each)), level)
    data = b"".join((_PNG, _chunk(b"IHDR", header), _chunk(b"IDAT", scanlines), _chunk(b"IEND", b"")))
    return InputImage(data, image.width, image.height, has_alpha=image.mode == "RGBA")


def _chunk(chunk_type: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(data, zlib.crc32(chunk_type))
    return b"".join((struct.pack(">I", len(data)), chunk_type, data, struct.pack(">I", checksum)))


def _encode_normalized(image: Image.Image) -> InputImage:
    upright = _upright(image)
    # Only its profile says what CMYK looks like; other modes may be converted before their profile is applied.
    normal = upright if upright.mode == "CMYK" else _to_plain_mode(upright)
    return encode_png(_to_plain_mode(convert_to_srgb(normal, image.info.get("icc_profile"))))


def _upright(image: Image.Image) -> Image.Image:
    """Turns the image as its EXIF says. Pillow would heed XMP, too, which browsers don't."""
    for name in ("xmp", "XML:com.adobe.xmp"):
        image.info.pop(name, None)
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, _UPRIGHT)
    except Exception:
        return image  # viewers show an image with damaged metadata unturned
    return image if orientation == _UPRIGHT else ImageOps.exif_transpose(image)


def _to_plain_mode(image: Image.Image) -> Image.Image:
    """Converts the image to 8-bit grey, RGB or RGBA."""
    if image.mode in _WIDE_MODES:
        # A plain conversion clips: everything above 255 of 65535 would turn white.
        return image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if image.has_transparency_data:
        return image if image.mode == "RGBA" else image.convert("RGBA")
    if image.mode in _PLAIN_MODES:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")
