"""Large JSON with files, of which never much is parsed at once."""

from __future__ import annotations

import json
from base64 import b64encode, encodebytes, urlsafe_b64encode
from random import Random
from typing import Any

import pytest
from fastapi import HTTPException

from serve_app.api import json_files
from serve_app.api.json_files import read_json
from serve_app.submission.errors import Invalid

KB = 1024
PLAIN = 200 * KB
LONGEST = 600 * KB
FILE = Random(1).randbytes(300 * KB)
TEXT = b64encode(FILE).decode()


@pytest.fixture(autouse=True)
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the lengths of all texts that were parsed at once."""
    lengths, loads = list[int](), json.loads

    def count(text: str | bytes) -> Any:
        lengths.append(len(text))
        return loads(text)

    monkeypatch.setattr(json_files, "MAX_PLAIN_BYTES", PLAIN)
    monkeypatch.setattr(json_files, "MAX_FILE_CHARS", LONGEST)
    monkeypatch.setattr(json_files.json, "loads", count)
    return lengths


BODIES: list[Any] = [
    {"prompt": "a cat", "images": [TEXT]},
    {"images": [f"data:image/png;base64,{TEXT}", TEXT, {"image_url": TEXT}], "prompt": 'é \\ " \n 🐈'},
    {"image": encodebytes(FILE).decode(), "mask": urlsafe_b64encode(FILE).decode()},
    {"prompt": "x" * 32_768, "image": TEXT, "n": 1.5, "deep": [[None, True, {"a": TEXT}]]},
    [TEXT, "", TEXT[:-1]],
    TEXT,
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("escapes", [{}, {"/": "\\/"}, {"+": "\\u002B", "/": "\\u002f"}])
@pytest.mark.parametrize("shift", [0, 5, 32_760])
def test_large_body_is_read_as_json(body: Any, escapes: dict[str, str], shift: int, parsed: list[int]) -> None:
    text = json.dumps(body)
    for plain, escaped in escapes.items():
        text = text.replace(plain, escaped)
    assert read_json(bytearray(b" " * shift + text.encode())) == body
    assert max(parsed) <= PLAIN


def test_byte_order_mark_is_ignored() -> None:
    assert read_json(json.dumps([TEXT]).encode("utf-8-sig")) == [TEXT]


@pytest.mark.parametrize(
    ("body", "loc", "kind"),
    [
        (f"[{TEXT}]", [], "json_invalid"),
        (f'["{TEXT}', [], "json_invalid"),
        (f'["a\\{TEXT}"]', [], "json_invalid"),
        (f'{{"a": 1{"2" * PLAIN}}}', [], "json_invalid"),
        (f'{{"{TEXT}": 1}}', [], "string_too_long"),
        (f'{{"a": ["{TEXT}\\u0000"]}}', ["a", "0"], "nul_character"),
        (f'{{"a": ["x", "{"A" * (LONGEST + 1)}"]}}', ["a", "1"], "file_too_large"),
    ],
)
def test_invalid_body_is_refused_at_its_field(body: str, loc: list[str], kind: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_json(body.encode())
    assert (refused.value.entry["loc"], refused.value.entry["type"]) == (["body", *loc], kind)


@pytest.mark.parametrize("character", [" ", "é", "🐈", "\\\\", "%"])
def test_length_of_other_text_is_limited(character: str, parsed: list[int]) -> None:
    body = json.dumps({"prompt": character * PLAIN}, ensure_ascii=False)
    with pytest.raises(HTTPException, match="beside base64; larger files go by POST /v1/uploads") as refused:
        read_json(body.encode())
    assert refused.value.status_code == 413
    assert max(parsed, default=0) <= PLAIN
