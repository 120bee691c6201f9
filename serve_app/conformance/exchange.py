"""What was sent and what came back, fit to be shown: secrets left out, pictures and long texts cut."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2

_LONGEST: Final = 120
"""Characters of one string; pictures are far longer."""
_LONGEST_BODY: Final = 1500
_SECRETS: Final = {"webhook_secret", "key", "secret"}
_SIGNATURE: Final = re.compile(r"([?&](?:sig|X-Amz-Signature|signature)=)[^&\s\"]+", re.IGNORECASE)
_HEADERS: Final = ("content-type", "retry-after", "etag", "deprecation", "sunset", "link", "location")


@dataclass(frozen=True, slots=True)
class Exchange:
    sent: str
    received: str

    @classmethod
    def of(cls, method: str, url: str, body: Any, response: httpx2.Response) -> Exchange:
        shown = "" if body is None else " " + _text(body)
        told = ", ".join(f"{name}: {response.headers[name]}" for name in _HEADERS if name in response.headers)
        return cls(_cut(f"{method} {url}{shown}"), _cut(f"{response.status_code} ({told}) {_content(response)}"))


def _content(response: httpx2.Response) -> str:
    kind = response.headers.get("content-type", "")
    if kind.startswith(("image/", "video/", "application/octet-stream")):
        return f"{len(response.content)} bytes"
    try:
        return _text(response.json())
    except ValueError:
        return response.text[:_LONGEST]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return json.dumps(_shown(value), ensure_ascii=False)


def _shown(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: "…" if name in _SECRETS and item else _shown(item) for name, item in value.items()}
        case list() | tuple():
            return [_shown(item) for item in value]
        case str() if len(value) > _LONGEST and not value.startswith("http"):
            return f"{value[:24]}… ({len(value)} characters)"
        case _:
            return value


def _cut(text: str) -> str:
    text = _SIGNATURE.sub(r"\1…", text)
    return text if len(text) <= _LONGEST_BODY else f"{text[:_LONGEST_BODY]}… ({len(text)} characters)"
