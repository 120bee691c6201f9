"""Files within text: base64, or a `data:` URI."""

from __future__ import annotations

import binascii
from typing import Final

import pybase64


class Unreadable(ValueError):
    """What was sent is no file of the kind that is asked for. The message says why, fit for the client's eyes."""


_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_SPACE: Final = b" \t\r\n\v\f"


def check_length(characters: int, max_bytes: int) -> None:
    """Judges base64 before it is decoded, with room for line breaks. Raises Unreadable."""
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
