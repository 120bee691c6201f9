"""How much work a picture's file asks for, counted from its outside before any of it is decoded.

A picture of 100 KB can ask for half a minute: a progressive JPEG may draw the same pixels again in every one of
thousands of scans, and PNG and WebP may come in a million parts. No camera, editor or encoder writes anything near
these bounds; a progressive JPEG usually has about ten scans.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final

MAX_SCANS: Final = 100
MAX_PARTS: Final = 50_000
"""Segments of a JPEG, chunks of a PNG or a WebP."""
MAX_FRAMES: Final = 1000
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_NEEDED: Final = frozenset((b"tRNS", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"fdAT"))
"""Ancillary chunks of a PNG that say how the picture looks."""

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
    at, kept = 8, [_PNG]
    while kind := data[at + 4 : at + 8]:
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        ancillary = kind[0] & 0x20
        broken = zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big")
        if not ancillary or (kind in _NEEDED and not broken):
            kept.append(data[at:end])
        at = end
        if kind == b"IEND":
            break
    return b"".join(kept)


def _jpeg_scans(data: bytes) -> int:
    """Of the first picture in the file: phones put further ones, and videos, behind it."""
    at, found, parts = 2, 0, 0
    while (marker := _MARKER.search(data, at)) is not None:
        kind, at = data[marker.start() + 1], marker.end()
        if kind == _END:
            break
        parts += 1
        found += kind == _SCAN
        if found > MAX_SCANS:
            raise TooMuchWork(f"the picture has more than {MAX_SCANS} scans")
        if parts > MAX_PARTS:
            raise TooMuchWork(f"the file has more than {MAX_PARTS} parts")
        if kind not in (_START, _LONELY):
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return max(1, found)


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
            raise TooMuchWork(f"the picture has more than {MAX_FRAMES} frames")
