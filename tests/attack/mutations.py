"""From the JSON body of an honest request to a hostile one: the same numbers make the same body."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from attack.corpus import values

JSON: Final = (("Content-Type", "application/json"),)
MANY_KEYS: Final = 300_000
LARGE_BYTES: Final = 20 * 2**20
_MARK: Final = "\ue000here\ue000"
"""Takes the place of a value in a body, until that is text."""
_OTHERS: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [None],
    [[]],
    {"a": {}},
    2**31,
    "0",
    " ",
)
_PREFIX: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Mutated:
    body: bytes
    headers: tuple[tuple[str, str], ...] = JSON
    declared: tuple[str, ...] | None = None
    chunks: tuple[int, ...] = ()


Mutation: TypeAlias = Callable[[Random, dict[str, Any]], Mutated]


def _plain(body: Any) -> bytes:
    return json.dumps(body).encode()


def _with(random: Random, body: dict[str, Any], value: str) -> bytes:
    """The body with `value`, JSON or not, in the place of one of its values, or as a new one."""
    field = random.choice([*body, *body, "seed", "prompt", "user", "extra"])
    text = json.dumps(body | {field: _MARK}, ensure_ascii=False)
    return text.replace(f'"{_MARK}"', value).encode("utf-8", "surrogatepass")


def _truncated(random: Random, body: dict[str, Any]) -> Mutated:
    whole = _plain(body)
    return Mutated(whole[: random.randrange(len(whole))])


def _flipped(random: Random, body: dict[str, Any]) -> Mutated:
    changed = bytearray(_plain(body))
    for _ in range(random.randint(1, 8)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return Mutated(bytes(changed))


def _spliced(random: Random, body: dict[str, Any]) -> Mutated:
    whole = _plain(body)
    start, end = sorted(random.randrange(len(whole)) for _ in range(2))
    at = random.randrange(len(whole))
    return Mutated(whole[:at] + whole[start:end] * random.randint(1, 50) + whole[at:])


def _doubled_keys(random: Random, body: dict[str, Any]) -> Mutated:
    again = [json.dumps(random.choice([*body, "x"])) + ":" + json.dumps(random.choice(_OTHERS)) for _ in range(50)]
    inner = _plain(body)[1:-1].decode()
    parts = [inner, *again] if random.random() < 0.5 else [*again, inner]
    return Mutated(("{" + ",".join(part for part in parts if part) + "}").encode())


def _wrong_type(random: Random, body: dict[str, Any]) -> Mutated:
    changed = dict(body)
    for field in random.sample([*body, "extra"], random.randint(1, min(3, len(body) + 1))):
        changed[field] = random.choice(_OTHERS)
    return Mutated(_plain(changed))


def _missing(random: Random, body: dict[str, Any]) -> Mutated:
    gone = random.choice([*body, ""])
    return Mutated(_plain({name: value for name, value in body.items() if name != gone}))


def _number(random: Random, body: dict[str, Any]) -> Mutated:
    digits = random.choice((400, 4301, 100_000))
    value = random.choice(
        [*values().numbers, "9" * digits, "-" + "9" * digits, "0." + "0" * digits + "1", "1" + "0" * 30]
    )
    return Mutated(_with(random, body, value))


def _text(random: Random, body: dict[str, Any]) -> Mutated:
    return Mutated(_with(random, body, random.choice(values().texts)))


def _raw_bytes(random: Random, body: dict[str, Any]) -> Mutated:
    bad = random.choice(
        (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xe2\x28")
    )
    return Mutated(_with(random, body, '"?"').replace(b'"?"', b'"' + bad + b'"'))


def _recoded(random: Random, body: dict[str, Any]) -> Mutated:
    text = json.dumps(body | {"prompt": "日本語"}, ensure_ascii=False)
    code = random.choice(("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "shift-jis"))
    data = text.encode(code, "replace")
    return Mutated(_PREFIX * 3 + data if random.random() < 0.1 else data)


def _no_object(random: Random, body: dict[str, Any]) -> Mutated:
    whole = _plain(body)
    others = (
        b"",
        b" ",
        b"[]",
        b"null",
        b'"x"',
        b"1",
        b"true",
        b"{",
        b"}",
        b"[" + whole + b"]",
        whole + whole,
        whole + b"x",
    )
    return Mutated(random.choice(others))


def _nested(random: Random, body: dict[str, Any]) -> Mutated:
    depth = random.choice((50, 200, 999, 5000, 100_000))
    start, end = random.choice((("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")))
    closed = random.random() < 0.7
    return Mutated(_with(random, body, start * depth + "1" + (end * depth if closed else "")))


def _structured_prompt(random: Random, body: dict[str, Any]) -> Mutated:
    entry = {"id": "a", "bbox": [0, 0, 9, 9], "desc": "d"}
    array: Any = random.choice(
        (
            [entry] * random.choice((1, 1000, 20_000)),
            [entry | {"bbox": [random.choice(_OTHERS)] * 4}],
            [entry | {"id": random.choice(_OTHERS)}],
            [entry, random.choice(_OTHERS)],
            [[[entry]]],
        )
    )
    tail = random.choice((json.dumps(array), "[" * 3000, "[" * 20_000 + "]" * 20_000, json.dumps([entry]) * 500))
    return Mutated(_plain(body | {"prompt": f"x {tail}"}))


def _odd_type(random: Random, body: dict[str, Any]) -> Mutated:
    if random.random() < 0.1:
        return Mutated(_plain(body), headers=())
    return Mutated(_plain(body), headers=(("Content-Type", random.choice(values().content_types)),))


def _compressed(random: Random, body: dict[str, Any]) -> Mutated:
    whole = _plain(body)
    bomb = random.random() < 0.05
    if bomb:
        whole = _plain(body | {"prompt": "x" * 50_000_000})
    ways: tuple[tuple[str, bytes], ...] = (
        ("gzip", gzip.compress(whole, 9, mtime=0)),
        ("deflate", zlib.compress(whole)),
        ("gzip, gzip", gzip.compress(gzip.compress(whole, 9, mtime=0), 9, mtime=0)),
        ("br", whole),
        ("zstd", b"\x28\xb5\x2f\xfd"),
        ("identity", whole if not bomb else b"{}"),
        ("gzip", whole[:10_000]),
        ("x" * 100, b"{}"),
    )
    encoding, data = random.choice(ways)
    return Mutated(data, (*JSON, ("Content-Encoding", encoding)))


def _in_chunks(random: Random, body: dict[str, Any]) -> Mutated:
    sizes = random.choice(((1,), (1, 2, 3), (7, 1), (65_536,), (2**20, 1)))
    return Mutated(_plain(body)[:20_000] if sizes[0] == 1 else _plain(body), chunks=sizes)


def _wrong_length(random: Random, body: dict[str, Any]) -> Mutated:
    whole = _plain(body)
    size = len(whole)
    told: tuple[tuple[str, ...], ...] = (
        (str(size - 1),),
        (str(size + 100),),
        ("0",),
        ("-1",),
        ("x",),
        ("",),
        (f"+{size}",),
        (f"{size:#x}",),
        (f"{size}, {size}",),
        (f"{size}, {size + 1}",),
        (str(size), str(size)),
        (str(size), str(size + 1)),
        (str(10**18),),
        (str(2**63),),
        ("9" * 400,),
        (f"{size}\u00b2",),
    )
    chunks = (5,) if random.random() < 0.2 else ()  # both at once: whom a proxy and an app believe may differ
    return Mutated(whole, declared=random.choice(told), chunks=chunks)


def _odd_header(random: Random, body: dict[str, Any]) -> Mutated:
    header = random.choice(
        (
            ("Idempotency-Key", "k" * random.choice((1, 255, 256, 8000))),
            ("Idempotency-Key", ""),
            ("Idempotency-Key", "é\u0001"),
            ("Authorization", "Bearer " + "a" * random.choice((1, 5000))),
            ("Authorization", "Bearer a.b.c"),
            ("Authorization", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0."),
            ("Authorization", "Basic Og=="),
            ("X-Forwarded-For", "127.0.0.1, " * 300),
            ("X-Forwarded-Host", "evil.test"),
            ("Accept", "text/html"),
            ("Accept-Encoding", "gzip;q=x, \u0001"),
            ("Expect", "100-continue"),
            ("Transfer-Encoding", "gzip, chunked"),
            ("Range", "bytes=0-0,-1"),
            ("Cookie", "x=" + "y" * 6000),
            ("X" * 3000, "y"),
            ("Upgrade", "websocket"),
        )
    )
    return Mutated(_plain(body), (*JSON, header))


def _many_keys(random: Random, body: dict[str, Any]) -> Mutated:
    more = ",".join(f'"k{number}":0' for number in range(MANY_KEYS))
    return Mutated(_plain(body)[:-1] + b"," + more.encode() + b"}")


def _many_lists(random: Random, body: dict[str, Any]) -> Mutated:
    piece = random.choice(("[],", "{},", "0,", '"",', "null,", '{"a":[]},', "[[[[]]]],"))
    value = "[" + piece * (LARGE_BYTES // len(piece)) + "0]"
    return Mutated(_with(random, body, value))


def _many_pictures(random: Random, body: dict[str, Any]) -> Mutated:
    field = random.choice(("images", "keyframes", "input_image", "image"))
    return Mutated(_plain(body | {field: ["AAAA"] * 500_000}))


def _long_text(random: Random, body: dict[str, Any]) -> Mutated:
    size = random.choice((300_000, 5_000_000))
    piece = random.choice(("x", "\\n", "\\ud83d\\ude00", "[", "é"))
    return Mutated(_with(random, body, '"' + piece * (size // len(piece)) + '"'))


LIGHT: Final[Mapping[str, Mutation]] = MappingProxyType(
    {
        "truncated": _truncated,
        "flipped": _flipped,
        "spliced": _spliced,
        "doubled keys": _doubled_keys,
        "wrong type": _wrong_type,
        "missing": _missing,
        "number": _number,
        "text": _text,
        "raw bytes": _raw_bytes,
        "recoded": _recoded,
        "no object": _no_object,
        "nested": _nested,
        "structured prompt": _structured_prompt,
        "odd type": _odd_type,
        "compressed": _compressed,
        "in chunks": _in_chunks,
        "wrong length": _wrong_length,
        "odd header": _odd_header,
    }
)
HEAVY: Final[Mapping[str, Mutation]] = MappingProxyType(
    {
        "many keys": _many_keys,
        "many lists": _many_lists,
        "many pictures": _many_pictures,
        "long text": _long_text,
    }
)
