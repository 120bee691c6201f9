"""Hostile pictures and videos: small to send, and large, endless, broken or something else to whoever opens them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any, Final, TypeAlias

from PIL import Image
from support.hostile_pictures import png_chunk, png_with, repeated_scan, webp_with
from support.pictures import file_of
from video_making import made

Corpus: TypeAlias = Mapping[str, Any]
_MB: Final = 2**20


@cache
def _honest(form: str) -> bytes:
    return file_of(Image.effect_noise((64, 64), 90).convert("RGB"), form)


@cache
def _packed_zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join([*(packer.compress(bytes(_MB)) for _ in range(megabytes)), packer.flush()])


def _scans(random: Random, corpus: Corpus) -> bytes:
    return repeated_scan(*random.choice(((4000, 3000), (2000, 1000), (512, 20_000), (64, 100_000))))


def _segments(random: Random, corpus: Corpus) -> bytes:
    """JPEG segments in great number between start and picture, some of them metadata that lies."""
    data = _honest("JPEG")
    marker, size = random.choice(((0xE1, 2), (0xE2, 60_000), (0xFE, 60_000), (0xDB, 67), (0xC4, 2), (0xED, 2)))
    entry = struct.pack(">HHII", 0x0112, 2, 2**32 - 1, 8)
    body = random.choice((b"ICC_PROFILE\0\1\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + entry, b"\0" * 65))
    segment = bytes((0xFF, marker)) + struct.pack(">H", size) + body.ljust(size, b"\0")[: size - 2]
    return data[:2] + segment * (3 * _MB // len(segment)) + data[2:]


def _false_size(random: Random, corpus: Corpus) -> bytes:
    """The header tells another size, depth or number of components."""
    width, height = random.choice(((30_000, 30_000), (0, 0), (1, 65_500), (4472, 4472), (2**31 - 1, 2**31 - 1)))
    if random.random() < 0.5:
        data = bytearray(_honest("JPEG"))
        at = data.index(b"\xff\xc0") + 4
        sides = min(height, 65_500), min(width, 65_500)
        data[at : at + 6] = struct.pack(">BHHB", random.choice((8, 12, 0)), *sides, random.choice((3, 1, 4, 0, 255)))
        return bytes(data)
    depth, colour = random.choice(((8, 2), (16, 6), (1, 0), (8, 3), (3, 2), (8, 7)))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, random.choice((0, 1, 2)))
    pixels = _packed_zeros(random.choice((1, 200)))
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", pixels) + png_chunk(b"IEND")


def _chunks(random: Random, corpus: Corpus) -> bytes:
    """Empty parts by the million; text, profiles and metadata of hundreds of megabytes, packed; frames without end."""
    packed = b"k\0\0" + _packed_zeros(random.choice((10, 400)))
    frames = png_chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)) + png_chunk(b"fcTL", bytes(26)) * 50_000
    empty = png_chunk(random.choice((b"teSt", b"IDAT", b"tIME", b"PLTE", b"tRNS", b"tEXt", b"eXIf")))
    many = png_chunk(b"zTXt", b"k\0\0" + _packed_zeros(1)) * 500
    texts = [png_chunk(kind, packed) for kind in (b"zTXt", b"iCCP", b"iTXt")]
    webp = webp_with(random.choice((b"EXIF\0\0\0\0", b"ANMF\x10\0\0\0" + bytes(16))) * 300_000)
    return random.choice((webp, *map(png_with, (empty * 1000, empty * 1_000_000, many, frames, *texts))))


def _harmed(random: Random, corpus: Corpus) -> bytes:
    """Cut, flipped, as large as may be, or another form, some of which call programs or read files."""
    data = bytearray(_honest(random.choice(("JPEG", "PNG", "WEBP"))))
    other = random.choice([*corpus["pictures"]]).encode("latin-1")
    forms = (_honest(form) for form in ("GIF", "BMP", "TIFF", "ICO", "PPM", "TGA", "JPEG2000"))
    large = file_of(Image.new(random.choice(("RGBA", "1", "P", "L", "RGB")), (4472, 4472)), "PNG", compress_level=1)
    return random.choice((*forms, other, *_damaged(random, data), large, bytes(data) + bytes(5 * _MB)))


def _damaged(random: Random, data: bytearray) -> tuple[bytes, bytes]:
    cut = bytes(data[: random.randrange(len(data))])
    for _ in range(random.randint(1, 20)):
        data[random.randrange(len(data))] = random.randrange(256)
    return cut, bytes(data)


PICTURES: Final[Mapping[str, Callable[[Random, Corpus], bytes]]] = {
    "repeated scans": _scans,
    "many segments": _segments,
    "false size": _false_size,
    "chunks": _chunks,
    "harmed": _harmed,
}


# Videos

_BOXES: Final = b"ftyp moov mvhd trak tkhd mdia mdhd hdlr stbl stsd stsz stco stts stsc stss elst avcC mdat".split()
_ENDS: Final = (0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1)


@cache
def _video(source: str = "testsrc=size=128x96:rate=24:duration=0.5", *output: str) -> bytes:
    return made(source, *output, sound=None if output else "sine=frequency=440:duration=0.5")


def _lies(random: Random, corpus: Corpus, port: int) -> bytes:
    """Boxes of false sizes, tables that promise more than there is; times, scales and sizes at their ends."""
    data, box = bytearray(_video()), random.choice(_BOXES)
    at = max(4, data.find(box))
    for word in random.sample((-1, 1, 2, 3, 4, 5, 6), random.randint(1, 3)):
        data[at + 4 * word : at + 4 * word + 4] = struct.pack(">I", random.choice(_ENDS))
    return bytes(data)


def _boxes(random: Random, corpus: Corpus, port: int) -> bytes:
    """Boxes that are nested, or many, before or behind the video."""
    kind = random.choice(_BOXES)
    nested = b"".join(struct.pack(">I", 8 * (5000 - level)) + kind for level in range(5000))
    return random.choice((b"", _video())) + random.choice((nested, (b"\0\0\0\x08" + kind) * 1_000_000)) + _video()


def _disguised(random: Random, corpus: Corpus, port: int) -> bytes:
    """What makes ffmpeg open other files and addresses, where it may guess the format."""
    text = random.choice(corpus["videos"]).replace("{target}", random.choice(corpus["video_targets"]))
    front = random.choice((b"", b"", b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom"))
    return front + text.replace("{port}", str(port)).encode("latin-1")


def _costly(random: Random, corpus: Corpus, port: int) -> bytes:
    """Small files that take long to decode, and files that are harmed."""
    forms = ("4096x2160:rate=24:duration=4", "64x64:rate=1000:duration=10", "128x96:rate=24:duration=60")
    if random.random() < 0.5:
        return random.choice(_damaged(random, bytearray(_video())))
    return _video(f"color=size={random.choice(forms)}", "-preset", "ultrafast")


VIDEOS: Final[Mapping[str, Callable[[Random, Corpus, int], bytes]]] = {
    "lies": _lies,
    "boxes": _boxes,
    "disguised": _disguised,
    "costly": _costly,
}
