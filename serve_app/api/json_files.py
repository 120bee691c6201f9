"""A parser of JSON with files in base64 that does not block other threads.

`json.loads` holds the interpreter's lock until it has parsed the whole body: a third of a second for 96 MiB. So this
module first cuts out the base64 in small pieces, parses the short remainder, and inserts the pieces again.
"""

from __future__ import annotations

import json
import secrets
import string
from typing import Any, Final

from fastapi import HTTPException

from serve_app.inputs.settings import VIDEOS
from serve_app.submission.errors import Invalid

NUL: Final = "nul_character"
NUL_MESSAGE: Final = "Input should have no NUL character"
UPLOAD_HINT: Final = "; larger files go by POST /v1/uploads"
MAX_PLAIN_BYTES: Final = 4 * 2**20
"""Maximum bytes of a body without its base64, which are parsed at once."""
MAX_FILE_CHARS: Final = int(VIDEOS.max_bytes * 1.4) + 1024
"""Maximum characters of a file in base64, including line breaks."""
_PIECE_BYTES: Final = 32 * 1024
_PIECES_AT_ONCE: Final = 32
_BASE64: Final = (string.ascii_letters + string.digits + "+/=-_").encode()
_LONGEST_ESCAPE: Final = 6
_INDEX_CHARS: Final = 6


def read_json(data: bytes | bytearray) -> Any:
    """Parses a body. Call it in a thread if `data` is large. Raises Invalid or HTTPException."""
    runs, text = list[list[str]](), data
    mark = f"@{secrets.token_hex(16)}"  # invalid JSON outside of strings and after a backslash
    if len(data) > MAX_PLAIN_BYTES:
        text = _cut_base64(data, mark, runs)
    if len(text) > MAX_PLAIN_BYTES:
        detail = f"Request body too large: at most {MAX_PLAIN_BYTES // 2**20} MiB beside base64{UPLOAD_HINT}"
        raise HTTPException(413, detail)
    try:
        value = json.loads(text.decode("utf-8-sig"))
    except json.JSONDecodeError as problem:
        raise Invalid(["body"], f"The body is not valid JSON: {problem.msg}", "json_invalid") from None
    except (ValueError, RecursionError):
        message = "The body is not valid JSON in UTF-8, or is nested too deeply"
        raise Invalid(["body"], message, "json_invalid") from None
    if b"\\u0000" in text:
        _check_nul(value, ["body"])
    return _restore(value, mark, runs, ["body"]) if runs else value


def _check_nul(value: Any, loc: list[str]) -> None:
    """Raises Invalid for a NUL, at which some stores and programs truncate strings."""
    if isinstance(value, str) and "\0" in value:
        raise Invalid(loc, NUL_MESSAGE, NUL)
    if isinstance(value, dict):
        for name, each in value.items():
            _check_nul(name, loc)
            _check_nul(each, [*loc, name])
    elif isinstance(value, list):
        for n, each in enumerate(value):
            _check_nul(each, [*loc, str(n)])


def _cut_base64(data: bytes | bytearray, mark: str, runs: list[list[str]]) -> bytearray:
    """Returns the text with a mark and a number for each long run of base64. Appends the runs to `runs` in pieces."""
    text, start, in_run = bytearray(), 0, False
    while start < len(data):
        piece = bytes(data[start : start + _PIECE_BYTES])
        if start + len(piece) < len(data) and (escape := piece.rfind(b"\\", -_LONGEST_ESCAPE)) > 0:
            piece = piece[:escape]  # keeps escapes whole
        start += len(piece)
        base64 = _read_base64(piece)
        if base64 is None:
            text += piece
        elif in_run:
            runs[-1].append(base64)
        else:
            text += f"{mark}{len(runs):0{_INDEX_CHARS}}".encode()
            runs.append([base64])
        in_run = base64 is not None
    return text


def _read_base64(piece: bytes) -> str | None:
    """Returns the characters of a piece of base64; None if it may contain anything but base64 and escapes."""
    others = piece.translate(None, _BASE64)
    if not others:
        return piece.decode("ascii")
    if others.strip(b"\\"):
        return None
    try:
        base64 = json.loads(b'"%b"' % piece)
    except ValueError:
        return None
    return base64 if base64.isascii() and "\0" not in base64 else None


def _restore(value: Any, mark: str, runs: list[list[str]], loc: list[str]) -> Any:
    if isinstance(value, str):
        return _join(value, mark, runs, loc) if mark in value else value
    if isinstance(value, dict):
        for name in value:
            if mark in name:
                raise Invalid(loc, "The name of a field is too long", "string_too_long")
            value[name] = _restore(value[name], mark, runs, [*loc, name])
    elif isinstance(value, list):
        value[:] = [_restore(each, mark, runs, [*loc, str(number)]) for number, each in enumerate(value)]
    return value


def _join(value: str, mark: str, runs: list[list[str]], loc: list[str]) -> str:
    joined, *others = value.split(mark)
    for other in others:
        run, remaining = runs[int(other[:_INDEX_CHARS])], other[_INDEX_CHARS:]
        if len(joined) + sum(map(len, run)) + len(remaining) > MAX_FILE_CHARS:
            raise Invalid(loc, f"The maximum size of a file is {VIDEOS.max_bytes // 2**20} MB", "file_too_large")
        # Appending grows the string in place; one `join` of all pieces would copy it while holding the lock.
        for start in range(0, len(run), _PIECES_AT_ONCE):
            joined += "".join(run[start : start + _PIECES_AT_ONCE])
        joined += remaining
    return joined
