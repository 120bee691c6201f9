from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serve_app.http.json_body import (
    ESCAPED_BYTES,
    MAX_DEPTH,
    MAX_TEXT_BYTES,
    MAX_VALUES,
    SHORT_BYTES,
    BadBody,
    JsonBody,
    TextTooLarge,
)

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)
LONG = "Zm9v" * (ESCAPED_BYTES // 4)


def read(data: bytes, chunk: int = 2**16) -> Any:
    body = JsonBody()
    for start in range(0, len(data), chunk):
        body.feed(data[start : start + chunk])
    return body.value()


@given(JSON, st.integers(1, 40), st.booleans())
@example(["\\", '"', "\\u", '\\"'], 1, True)
@example(["\U0001f408" * SHORT_BYTES], 7, True)
def test_it_says_what_it_says_however_it_comes(value: Any, chunk: int, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert read(data, chunk) == value


@pytest.mark.parametrize("chunk", [1, 1000, 2**16, 2**30])
def test_long_strings_are_kept_apart(chunk: int) -> None:
    value = {"prompt": 'a "cat"', "images": [LONG * 2, "x" * SHORT_BYTES, "\u00e9\n" * SHORT_BYTES], "seed": 3}
    body = JsonBody()
    data = json.dumps(value).encode()
    for start in range(0, len(data), chunk):
        body.feed(data[start : start + chunk])
    assert body.is_large
    assert len(body.text) < 3 * SHORT_BYTES
    assert body.value() == value


@pytest.mark.parametrize("chunk", [1, 1000, 2**16])
def test_what_encoders_write_within_base64(chunk: int) -> None:
    text = LONG + "/a\n/b\r\n" * 1000
    data = json.dumps([text]).replace("/", r"\/").encode()
    assert read(data, chunk) == [text]


@pytest.mark.parametrize("escape", [r"\"", r"\\", r"\u0041", r"\t"])
def test_other_escapes_in_what_no_prompt_can_be(escape: str) -> None:
    for long in (LONG + escape, escape + LONG):
        with pytest.raises(BadBody, match="192 KiB should be files in base64"):
            read(f'["{long}x"]'.encode())


def test_the_longest_prompt_may_be_escaped_throughout() -> None:
    prompt = "\u732b" * 32_768
    data = json.dumps({"prompt": prompt}).encode()
    assert len(data) > ESCAPED_BYTES
    assert read(data) == {"prompt": prompt}


def test_values_are_bounded_before_any_is_made() -> None:
    assert len(read(json.dumps(["x"] * (MAX_VALUES - 2)).encode())) == MAX_VALUES - 2
    body = JsonBody()
    with pytest.raises(BadBody, match="at most 2000 values") as refused:
        body.feed(b'{"prompt":"x"' + b"".join(b',"k%d":0' % n for n in range(300_000)))
    assert refused.value.kind == "too_many_values"
    with pytest.raises(BadBody, match="at most 2000 values"):
        JsonBody().feed(b'{"images":[' + b"[]," * 7_000_000)


def test_depth_is_bounded() -> None:
    def nested(depth: int) -> bytes:
        return b"[" * depth + b"]" * depth

    assert read(nested(MAX_DEPTH)) is not None
    for depth in (MAX_DEPTH + 2, MAX_VALUES - 10):
        with pytest.raises(BadBody, match="nested"):
            read(nested(depth))


def test_text_is_bounded() -> None:
    with pytest.raises(TextTooLarge):
        JsonBody().feed(b" " * (MAX_TEXT_BYTES + 1))
    with pytest.raises(TextTooLarge):
        read(json.dumps(["y" * (SHORT_BYTES - 1)] * 100).encode())


@pytest.mark.parametrize(
    "data",
    [b"{", b'{"a": }', b'"', b'"\\', b'"x\\"', b"a=b", b"\x00", b'"\xff"', b'"' + b"\xff" * 5000 + b'"', b'"\\x"',
     b'"' + b"\\x" * 5000 + b'"', '{"a": 1}'.encode("utf-16"), b"9" * 5000, b'"a" "b"', b""],
    ids=lambda data: repr(data[:12]),
)  # fmt: skip
def test_what_is_no_json(data: bytes) -> None:
    with pytest.raises(BadBody, match="not valid JSON"):
        read(data)


def test_a_byte_order_mark_is_no_harm() -> None:
    assert read(b"\xef\xbb\xbf[1]") == [1]


def test_nobody_can_name_what_is_kept_apart() -> None:
    first, second = JsonBody(), JsonBody()
    for body in (first, second):
        body.feed(json.dumps([LONG]).encode())
    assert first.text != second.text
