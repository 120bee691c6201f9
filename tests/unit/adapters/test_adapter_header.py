"""What stands in front of a safetensors file is bounded before anything is made of it."""

from __future__ import annotations

import io
import json
import struct

import pytest

from deployments.adapters.header import MOST_BYTES, MOST_TENSORS, AdapterError, read_header, shown


def file(header: bytes, length: int | None = None) -> io.BytesIO:
    return io.BytesIO(struct.pack("<Q", len(header) if length is None else length) + header)


def test_a_header_is_read() -> None:
    assert read_header(file(b'{"a": {"shape": [1]}}  ')) == {"a": {"shape": [1]}}


@pytest.mark.parametrize("length", [MOST_BYTES + 1, 2**64 - 1])
def test_a_long_header_is_not_read(length: int) -> None:
    opened = file(b"{}", length)
    with pytest.raises(AdapterError, match="longer than 8 MiB"):
        read_header(opened)
    assert opened.tell() == 8


@pytest.mark.parametrize("header", [b"", b"[]", b"5", b"{", b"\xff", b'{"a":' * 1_000_000, b"[" * 1_000_000])
def test_what_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(AdapterError, match="not a safetensors file"):
        read_header(file(header))


def test_a_file_that_breaks_off_is_refused() -> None:
    for cut in (b"", b"\x01", struct.pack("<Q", 100) + b"{}"[:1]):
        with pytest.raises(AdapterError, match="not a safetensors file"):
            read_header(io.BytesIO(cut))


def test_tensors_are_counted() -> None:
    many = {f"t{n}": 0 for n in range(MOST_TENSORS)}
    assert len(read_header(file(json.dumps(many).encode()))) == MOST_TENSORS
    with pytest.raises(AdapterError, match="more than 20000 tensors"):
        read_header(file(json.dumps(many | {"one": 0}).encode()))


def test_long_names_are_cut() -> None:
    assert shown("a" * 100) == "a" * 100
    assert shown("a" * 1000) == "a" * 100 + "…"
