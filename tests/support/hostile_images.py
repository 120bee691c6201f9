"""Small image files that are costly to decode."""

from __future__ import annotations

import struct
import zlib

from PIL import Image

from support.images import encode_image


def repeated_scan(side: int, times: int) -> bytes:
    """Returns a progressive JPEG of `side` x `side` pixels that repeats its last scan `times` times."""
    data = encode_image(Image.new("RGB", (side, side), "teal"), "JPEG", progressive=True)
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return data[:end] + data[last:end] * times + data[end:]


def png_chunk(kind: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_with(chunks: bytes, image: Image.Image | None = None) -> bytes:
    """Returns a PNG with `chunks` after its header."""
    data = encode_image(image or Image.new("RGB", (64, 64)))
    behind_header = 8 + 25
    return data[:behind_header] + chunks + data[behind_header:]


def webp_with(chunks: bytes) -> bytes:
    """Returns a WebP that ends with `chunks`."""
    data = encode_image(Image.new("RGB", (64, 64)), "WEBP")
    return data[:4] + struct.pack("<I", len(data) - 8 + len(chunks)) + data[8:] + chunks
