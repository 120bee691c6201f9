"""A body, read as it comes: a small text of JSON, and apart from it the long strings that pictures are sent as.

What JSON can ask of those who read it is bounded while it is read, before anything is made of it: how much there is
beside long strings, how many values, how deep. So neither a body of many keys nor one of 200 MB of pictures keeps other
requests waiting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json import JSONDecodeError
from secrets import token_hex
from typing import Any, Final, NamedTuple

MAX_TEXT_BYTES: Final = 256 * 1024
"""Of a body without the strings that are kept apart."""
SHORT_BYTES: Final = 4096
"""A string of more is kept apart."""
ESCAPED_BYTES: Final = 192 * 1024
"""Only strings of up to so much may have any escapes: the longest prompt, with every character escaped, has as many."""
MAX_VALUES: Final = 2000
"""Strings, numbers, lists and objects of a body; none of the service's requests has a hundred."""
MAX_DEPTH: Final = 16

NUL: Final = "nul_character"
NUL_REFUSED: Final = "Input should have no NUL character"
"""Kind and message of the error."""

_INSIDE: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""From within a string to its end, or to the end of what has come of it."""
_OTHER_ESCAPE: Final = re.compile(rb"\\[^/nr]", re.DOTALL)
"""What no encoder writes within base64."""


class BadBody(ValueError):
    """The body is not one that can be read. The message is fit for the client's eyes."""

    def __init__(self, message: str, kind: str = "json_invalid", loc: Sequence[str] = ()) -> None:
        """`loc` leads from the body to what is wrong with it, where that is one value."""
        super().__init__(message)
        self.kind = kind
        self.loc = loc


class TextTooLarge(ValueError):
    """More than `MAX_TEXT_BYTES` beside long strings."""


class _Apart(NamedTuple):
    string: bytearray
    is_plain: bool


class JsonBody:
    def __init__(self) -> None:
        self._text = bytearray()
        self._string: bytearray | None = None
        """Of the string that has begun and not ended."""
        self._is_plain = False
        """It became so long that its escapes are undone as it comes."""
        self._held_back = b""
        """A backslash at the end of what has come."""
        self._apart: dict[str, _Apart] = {}
        """By what stands for each in the text; nobody else can know it."""
        self._mark = token_hex(16)
        self._values = 1

    def feed(self, chunk: bytes) -> None:
        """Takes what has come. Raises BadBody or TextTooLarge as soon as it is clear."""
        if self._held_back:
            chunk, self._held_back = self._held_back + chunk, b""
        at = 0
        while at < len(chunk):
            at = self._outside(chunk, at) if self._string is None else self._inside(self._string, chunk, at)

    @property
    def text(self) -> bytes:
        """The body without the strings that are kept apart."""
        return bytes(self._text)

    @property
    def is_large(self) -> bool:
        """Whether to call `value` in a thread."""
        return bool(self._apart)

    def value(self) -> Any:
        """What the whole body says, once. Raises BadBody."""
        try:
            value = json.loads(self._text.decode("utf-8-sig"))
        except JSONDecodeError as problem:
            raise BadBody(f"The body is not valid JSON: {problem.msg}") from None
        except (ValueError, RecursionError):
            raise BadBody("The body is not valid JSON in UTF-8, or is nested too deeply") from None
        return self._whole(value, ())

    def _outside(self, chunk: bytes, at: int) -> int:
        """Goes to the end of the chunk, or into the next string. Returns where that is."""
        quote = chunk.find(b'"', at)
        end = len(chunk) if quote < 0 else quote + 1
        piece = chunk[at:end]
        self._values += piece.count(b"[") + piece.count(b"{") + piece.count(b",")
        if self._values > MAX_VALUES:
            raise BadBody(f"The body should hold at most {MAX_VALUES} values", "too_many_values")
        self._keep(piece)
        if quote >= 0:
            self._string, self._is_plain = bytearray(), False
        return end

    def _inside(self, string: bytearray, chunk: bytes, at: int) -> int:
        """Goes to the end of the chunk, or of the string. Returns where that is."""
        end = _end_inside(chunk, at)
        piece = chunk[at:end]
        string += _unescaped(piece) if self._is_plain else piece
        if not self._is_plain and len(string) > ESCAPED_BYTES:
            self._is_plain, string[:] = True, _unescaped(bytes(string))
        if chunk[end : end + 1] == b"\\":
            self._held_back = chunk[end:]
            return len(chunk)
        if end == len(chunk):
            return end
        self._string = None
        if len(string) > SHORT_BYTES:
            name = f"{self._mark}{len(self._apart)}"
            self._apart[name] = _Apart(string, self._is_plain)
            string = bytearray(name.encode())
        self._keep(string + b'"')
        return end + 1

    def _keep(self, piece: bytes | bytearray) -> None:
        self._text += piece
        if len(self._text) > MAX_TEXT_BYTES:
            raise TextTooLarge

    def _whole(self, value: Any, loc: tuple[str, ...]) -> Any:
        """`value`, which is at `loc`, with the strings that were kept apart, each of which is taken out of here."""
        if len(loc) > MAX_DEPTH:
            raise BadBody(f"The body should be nested at most {MAX_DEPTH} deep", "too_deep")
        match value:
            case str():
                kept = self._apart.pop(value, None)
                return _without_nul(value if kept is None else _decoded(kept), loc)
            case list():
                return [self._whole(each, (*loc, str(index))) for index, each in enumerate(value)]
            case dict():
                return {_without_nul(name, loc): self._whole(each, (*loc, name)) for name, each in value.items()}
            case _:
                return value


def _end_inside(chunk: bytes, at: int) -> int:
    """Where a string ends that `at` is in: at a quote, at a backslash that is the last byte, or behind all."""
    if chunk.find(b'"', at) < 0 and chunk.find(b"\\", at) < 0:
        return len(chunk)
    inside = _INSIDE.match(chunk, at)
    assert inside is not None, "it may be empty"
    return inside.end()


def _without_nul(text: str, loc: tuple[str, ...]) -> str:
    if "\0" in text:
        raise BadBody(NUL_REFUSED, NUL, loc)
    return text


def _unescaped(piece: bytes) -> bytes:
    if b"\\" not in piece:
        return piece
    if _OTHER_ESCAPE.search(piece):
        most = ESCAPED_BYTES // 1024
        raise BadBody(f"Strings of over {most} KiB should be files in base64, or data: URIs", "string_too_long")
    return piece.replace(rb"\/", b"/").replace(rb"\n", b"\n").replace(rb"\r", b"\r")


def _decoded(kept: _Apart) -> str:
    try:
        if kept.is_plain or b"\\" not in kept.string:
            return kept.string.decode()
        return json.loads(b'"' + kept.string + b'"')
    except ValueError:
        raise BadBody("The body is not valid JSON in UTF-8") from None
