"""From the JSON body of an honest request to a hostile one: the same random numbers make the same body."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, TypeAlias

from attack.wire import JSON, Request

Json: TypeAlias = dict[str, Any]
NO_HTTP: Final = frozenset({"framing", "odd header"})
"""Kinds whose requests may be no proper HTTP."""
_LARGE_BYTES: Final = 20 * 2**20
_CHUNKED: Final = ("Transfer-Encoding", "chunked")
_MARK: Final = "\ue000here\ue000"
"""Takes the place of a value in a body, until that is text."""
Mutation: TypeAlias = Callable[[Random, Json, Mapping[str, Any]], Request]
"""The last is the corpus. Method and target of the request are to be set."""


def _sent(body: bytes, headers: tuple[tuple[str, str], ...] = JSON, **more: Any) -> Request:
    return Request("", "", body, headers, **more)


def _plain(body: Any) -> bytes:
    return json.dumps(body).encode()


def _with(random: Random, body: Json, value: str) -> bytes:
    """The body with `value`, JSON or not, in the place of one of its values, or as a new one."""
    field = random.choice([*body, *body, "seed", "prompt", "user", "extra"])
    text = json.dumps(body | {field: _MARK}, ensure_ascii=False)
    return text.replace(f'"{_MARK}"', value).encode("utf-8", "surrogatepass")


def _broken(random: Random, body: Json, corpus: Mapping[str, Any]) -> Request:
    """Cut, flipped, spliced, or with bytes that are no text."""
    whole = bytearray(_plain(body))
    start, end = sorted(random.randrange(len(whole)) for _ in range(2))
    match random.randrange(4):
        case 0:
            del whole[start:]
        case 1:
            for _ in range(random.randint(1, 8)):
                whole[random.randrange(len(whole))] = random.randrange(256)
        case 2:
            whole[start:start] = whole[start:end] * random.randint(1, 50)
        case _:
            bad = random.choice((b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xf4\x90\x80\x80"))
            return _sent(_with(random, body, '"?"').replace(b'"?"', b'"' + bad + b'"'))
    return _sent(bytes(whole))


def _wrong_type(random: Random, body: Json, corpus: Mapping[str, Any]) -> Request:
    changed = {name: value for name, value in body.items() if random.random() < 0.9}
    for field in random.sample([*body, "extra"], random.randint(0, min(3, len(body) + 1))):
        changed[field] = random.choice(corpus["others"])
    return _sent(_plain(changed) if changed else random.choice(corpus["no_objects"]).encode())


def _value(random: Random, body: Json, corpus: Mapping[str, Any]) -> Request:
    digits = "9" * random.choice((400, 4301, 100_000))
    numbers = [*corpus["numbers"], digits, "-" + digits, f"0.{digits}"]
    return _sent(_with(random, body, random.choice(random.choice((numbers, corpus["texts"])))))


def _nested(random: Random, body: Json, corpus: Mapping[str, Any]) -> Request:
    depth = random.choice((50, 999, 5000, 100_000))
    start, end = random.choice((("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")))
    return _sent(_with(random, body, start * depth + "1" + end * depth * random.choice((0, 1, 1))))


def _odd_type(random: Random, body: Json, corpus: Mapping[str, Any]) -> Request:
    """Another type, another encoding of the text, or compressed, little or very much."""
    if random.random() < 0.4:
        return _sent(_plain(body), (("Content-Type", random.choice(corpus["content_types"])),))
    if random.random() < 0.5:
        bomb = _plain(body | {"prompt": "x" * random.choice((10, 50_000_000))})
        return _sent(gzip.compress(bomb, 9, mtime=0), (*JSON, ("Content-Encoding", random.choice(("gzip", "deflate")))))
    text = json.dumps(body | {"prompt": "日本語"}, ensure_ascii=False)
    return _sent(text.encode(random.choice(corpus["encodings"]), "replace"))


def _framed(random: Random, body: Json, corpus: Mapping[str, Any]) -> Request:
    """In chunks, with a length that is none or a lie, or both: whom a proxy and an app believe may differ."""
    whole = _plain(body)
    told = random.choice(corpus["lengths"]).format(size=len(whole), less=len(whole) - 1, more=len(whole) + 100)
    framing = random.choice(((_CHUNKED,), (("Content-Length", told),), (("Content-Length", told), _CHUNKED)))
    if _CHUNKED in framing:
        size = random.choice((1, 7, 1000, 2**20))
        parts = [whole[at : at + size] for at in range(0, min(len(whole), 20_000 * size), size)]
        whole = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))
    return _sent(whole, framing=framing)


def _odd_header(random: Random, body: Json, corpus: Mapping[str, Any]) -> Request:
    name, value = (each.replace("{long}", "k" * 5000) for each in random.choice(corpus["headers"]))
    return _sent(_plain(body), (*JSON, (name, value)))


def _heavy(random: Random, body: Json, corpus: Mapping[str, Any]) -> Request:
    """Megabytes: of keys, of values, of pictures, of text."""
    piece = random.choice(("[],", "{},", "0,", '"",', "null,", '{"a":[]},', "[[[[]]]],", '"AAAA",'))
    text = random.choice(("x", "\\n", "\\ud83d\\ude00", "[", "é"))
    match random.randrange(3):
        case 0:
            keys = ",".join(f'"k{number}":0' for number in range(300_000))
            return _sent(_plain(body)[:-1] + b"," + keys.encode() + b"}")
        case 1:
            return _sent(_with(random, body, "[" + piece * (_LARGE_BYTES // len(piece)) + "0]"))
        case _:
            return _sent(_with(random, body, '"' + text * (5_000_000 // len(text)) + '"'))


KINDS: Final[Mapping[str, Mutation]] = {
    "broken": _broken,
    "wrong type": _wrong_type,
    "value": _value,
    "nested": _nested,
    "odd type": _odd_type,
    "framing": _framed,
    "odd header": _odd_header,
    "heavy": _heavy,
}
