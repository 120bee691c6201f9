"""Hostile picture files: small on the wire, and large, endless, broken or something else to whoever opens them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from PIL import Image
from support.pictures import file_of

Maker: TypeAlias = Callable[[Random], bytes]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_START_OF_SCAN: Final = b"\xff\xda"
_END: Final = b"\xff\xd9"
_MB: Final = 2**20


@cache
def _noise(side: int = 64) -> Image.Image:
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, (side, side, 3), np.uint8))


@cache
def _honest(form: str, **options: Any) -> bytes:
    return file_of(_noise(), form, **options)


def _chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _header(width: int, height: int, depth: int = 8, colour: int = 2, interlace: int = 0) -> bytes:
    return _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))


def _png(*chunks: bytes, width: int = 8, height: int = 8, rows: bytes | None = None, **header: int) -> bytes:
    """`chunks` stand between the header and the pixels, which are black unless `rows` are given."""
    data = zlib.compress(rows if rows is not None else bytes(height * (1 + 3 * width)), 9)
    return _SIGNATURE + _header(width, height, **header) + b"".join(chunks) + _chunk(b"IDAT", data) + _chunk(b"IEND")


@cache
def _progressive(side: int) -> tuple[bytes, bytes]:
    """A progressive JPEG in two: its last scan, and what comes before."""
    data = file_of(Image.new("RGB", (side, side), "teal"), "JPEG", progressive=True)
    at = data.rindex(_START_OF_SCAN)
    return data[at : -len(_END)], data[:at]


def repeated_scans(side: int, times: int) -> bytes:
    """Each scan makes a decoder go over the whole picture once more."""
    scan, before = _progressive(side)
    return before + scan * times + _END


def _scans(random: Random) -> bytes:
    return repeated_scans(*random.choice(((4000, 3000), (4000, 300), (2000, 1000), (512, 20_000), (64, 100_000))))


def _segments(random: Random) -> bytes:
    """JPEG segments in great number between start and picture."""
    data = _honest("JPEG")
    marker, size = random.choice(
        ((0xE1, 2), (0xE2, 60_000), (0xFE, 60_000), (0xDB, 67), (0xC4, 2), (0xDD, 4), (0xED, 2))
    )
    body = random.choice((b"ICC_PROFILE\0\1\xff", b"Exif\0\0MM\0*", b"\0" * 65))
    segment = bytes((0xFF, marker)) + struct.pack(">H", size) + body.ljust(size, b"\0")[: size - 2]
    return data[:2] + segment * (3 * _MB // len(segment)) + data[2:]


def _jpeg_size(random: Random) -> bytes:
    """The frame header tells another size, depth or number of components."""
    data = bytearray(_honest("JPEG"))
    at = data.index(b"\xff\xc0") + 4
    data[at : at + 6] = struct.pack(
        ">BHHB", random.choice((8, 12, 16, 0)), *random.choice(((65500, 65500), (0, 64), (1, 65500), (4472, 4472))),
        random.choice((3, 1, 4, 0, 255)),
    )  # fmt: skip
    return bytes(data)


def _restarts(random: Random) -> bytes:
    data = _honest("JPEG")
    return data[:-2] + b"\xff\xd0\xff\xd1" * random.choice((10, 500_000)) + _END


def _exif(random: Random) -> bytes:
    """Metadata whose directories lead in a circle, or promise more than there is."""
    entries = random.choice((1, 3, 65_535))
    kind, count = random.choice(((2, 2**32 - 1), (4, 2**31), (3, 1), (12, 10**6), (99, 4)))
    tag = random.choice((0x0112, 0x8769, 0x8825, 0xA005, 0x014A))
    entry = struct.pack(">HHII", tag, kind, count, 8)
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">H", entries) + entry * min(entries, 3) + struct.pack(">I", 8)
    data = _honest("JPEG")
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


def _empty_chunks(random: Random) -> bytes:
    kind = random.choice((b"teSt", b"IDAT", b"tIME", b"sBIT", b"PLTE", b"tRNS", b"fdAT", b"tEXt", b"eXIf"))
    return _png(_chunk(kind) * random.choice((1000, 1_000_000)))


def _text_bomb(random: Random) -> bytes:
    """Text, a profile or metadata of a hundred megabytes, packed."""
    size = random.choice((10, 100, 400)) * _MB
    packed = _packed_zeros(size)
    kind = random.choice(("zTXt", "iTXt", "iCCP", "many"))
    if kind == "many":
        return _png(_chunk(b"zTXt", b"k\0\0" + _packed_zeros(_MB)) * 500)
    if kind == "iTXt":
        return _png(_chunk(b"iTXt", b"k\0\1\0\0\0" + packed))
    return _png(_chunk(kind.encode(), b"k\0\0" + packed))


@cache
def _packed_zeros(size: int) -> bytes:
    packer = zlib.compressobj(9)
    piece = bytes(_MB)
    return b"".join([*(packer.compress(piece) for _ in range(size // _MB)), packer.flush()])


def _pixel_bomb(random: Random) -> bytes:
    """More pixels than the header tells of, or a header that tells of more than there are."""
    if random.random() < 0.4:
        pixels = _chunk(b"IDAT", _packed_zeros(200 * _MB))
        return _SIGNATURE + _header(8, 8) + pixels + _chunk(b"IEND")
    sides = (
        (30_000, 30_000),
        (2**31 - 1, 2**31 - 1),
        (0, 0),
        (2**32 - 1, 1),
        (1, 20_000_000),
        (4472, 4472),
        (4579, 4579),
    )
    width, height = random.choice(sides)
    depth, colour = random.choice(((8, 2), (16, 6), (1, 0), (8, 3), (16, 0), (3, 2), (8, 7)))
    return _png(width=width, height=height, rows=b"", depth=depth, colour=colour, interlace=random.choice((0, 1, 2)))


def _large_honest(random: Random) -> bytes:
    """As large as it may be, in a mode that has to be converted."""
    mode = random.choice(("RGBA", "I;16", "1", "P", "L", "RGB"))
    image = Image.new("RGB" if mode == "I;16" else mode, (4472, 4472))
    return file_of(image.convert("I;16") if mode == "I;16" else image, "PNG", compress_level=1)


def _apng(random: Random) -> bytes:
    """As many frames as it says, or not."""
    told, there = random.choice(((2**31 - 1, 1), (100_000, 100_000), (1, 50_000), (0, 10), (3000, 3000)))
    pixels = zlib.compress(bytes(8 * 25), 9)
    frames: Iterator[bytes] = (
        _chunk(b"fcTL", struct.pack(">IIIIIHHBB", 2 * number, 8, 8, 0, 0, 1, 1000, 0, 0))
        + _chunk(b"fdAT", struct.pack(">I", 2 * number + 1) + pixels)
        for number in range(there)
    )
    control = _chunk(b"acTL", struct.pack(">II", told, 0))
    return _SIGNATURE + _header(8, 8) + control + _chunk(b"IDAT", pixels) + b"".join(frames) + _chunk(b"IEND")


def _webp(random: Random) -> bytes:
    """Animated, on a canvas that is larger than its frames."""
    width, height = random.choice(((16_384, 16_384), (4472, 4472), (64, 64), (1, 16_384)))
    still = _honest("WEBP")[12:]
    frame = struct.pack("<I", 0)[:3] * 2 + (63).to_bytes(3, "little") * 2 + (0).to_bytes(3, "little") + b"\0" + still
    frames = (b"ANMF" + struct.pack("<I", len(frame)) + frame + b"\0" * (len(frame) % 2)) * random.choice(
        (1, 500, 3000)
    )
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<IB3x", 10, 0x02) + size + b"ANIM" + struct.pack("<IIH", 6, 0, 0) + frames
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _mpo(random: Random) -> bytes:
    frames = [_noise(16)] * random.choice((2, 300))
    return file_of(_noise(), "MPO", save_all=True, append_images=frames)


def _profile(random: Random) -> bytes:
    profile = random.choice((b"\xff" * 200, bytes(5 * _MB), (2**32 - 1).to_bytes(4, "big") + b"acsp" * 1000))
    form = random.choice(("PNG", "JPEG", "WEBP"))
    return file_of(_noise(), form, icc_profile=profile)


def _odd_mode(random: Random) -> bytes:
    mode, form = random.choice(
        (("CMYK", "JPEG"), ("I;16", "PNG"), ("LA", "PNG"), ("1", "PNG"), ("P", "PNG"), ("L", "WEBP"))
    )
    return file_of(Image.new("L", (300, 200), 99).convert(mode), form)


def _other_form(random: Random) -> bytes:
    """Other formats, some of which call programs or read files."""
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\n"
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    entity = b'<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]><svg>&y;</svg>'
    texts = (
        postscript,
        svg,
        entity,
        b"%PDF-1.7\n",
        b"P6 99999 99999 255\n",
        b"<html>",
        b"GIF89a" + bytes(50),
        b"8BPS\0\1",
    )
    saved = tuple(_honest(form) for form in ("GIF", "BMP", "TIFF", "ICO", "PPM", "TGA", "JPEG2000"))
    return random.choice((*texts, *saved))


def _cut(random: Random) -> bytes:
    data = _honest(random.choice(("JPEG", "PNG", "WEBP")))
    return data[: random.randrange(len(data))]


def _flipped(random: Random) -> bytes:
    data = bytearray(
        random.choice((_honest("JPEG"), _honest("JPEG", progressive=True), _honest("PNG"), _honest("WEBP")))
    )
    for _ in range(random.randint(1, 20)):
        data[random.randrange(len(data) if random.random() < 0.5 else 200)] = random.randrange(256)
    return bytes(data)


def _joined(random: Random) -> bytes:
    """Two files in one, or one with megabytes behind it."""
    return _honest(random.choice(("JPEG", "PNG"))) + random.choice((_honest("WEBP"), b"PK\x03\x04", bytes(5 * _MB)))


FILES: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "repeated scans": _scans,
        "many segments": _segments,
        "false size": _jpeg_size,
        "restarts": _restarts,
        "metadata": _exif,
        "empty chunks": _empty_chunks,
        "text bomb": _text_bomb,
        "pixel bomb": _pixel_bomb,
        "large": _large_honest,
        "many frames": _apng,
        "large canvas": _webp,
        "pictures in a picture": _mpo,
        "profile": _profile,
        "odd mode": _odd_mode,
        "another form": _other_form,
        "cut": _cut,
        "flipped": _flipped,
        "joined": _joined,
    }
)


def written(kind: str, mark: str) -> bytes:
    """The same for the same mark."""
    return FILES[kind](Random(mark))
