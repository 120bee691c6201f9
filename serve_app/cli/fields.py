"""Request fields at the command line, in HTTPie's syntax, checked against the service's OpenAPI document.

`name=value` takes the type that the endpoint gives to the field, `name=@FILE` sends a file where the field holds one,
`name:=JSON` sends JSON as it is.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from serve_app.inputs.settings import IMAGES, VIDEOS

Schema = Mapping[str, Any]

_KINDS = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}


@dataclass(frozen=True)
class Field:
    """What one field takes."""

    kinds: frozenset[str]
    """Types of JSON."""
    choices: tuple[str, ...] = ()
    item: Field | None = None
    """Of a list."""

    def value(self, text: str) -> Any:
        """`text` as JSON, where the field takes what that makes; else as it is."""
        read = parse_json(text)
        if "string" in self.kinds and (read is None or not self._takes(read)):
            return text
        if "array" in self.kinds and not isinstance(read, list):
            return [self.item.value(text) if self.item else text]
        # What does not fit is refused by the service, which says what would.
        return text if isinstance(read, str) else read

    def _takes(self, value: Any) -> bool:
        kind = _KINDS.get(type(value))
        return kind in self.kinds or (kind == "integer" and "number" in self.kinds)


@dataclass(frozen=True)
class Form:
    """What an endpoint takes, by field; None where the service does not say."""

    fields: Mapping[str, Field] | None = None

    @property
    def formats(self) -> tuple[str, ...] | None:
        """Which files the endpoint makes, None where that is not known. What has no choice of them makes videos."""
        if self.fields is None:
            return None
        chosen = self.fields.get("output_format")
        return chosen.choices if chosen else ("mp4",)


class Description:
    """Read from the document at `/openapi.json`."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def endpoints(self) -> dict[str, Schema]:
        """The operations that generate, by the endpoint's name."""
        return {
            path.removeprefix("/v1/"): methods["post"]
            for path, methods in self._document.get("paths", {}).items()
            if "generate" in methods.get("post", {}).get("tags", ())
        }

    def form(self, endpoint: str) -> Form:
        """What the endpoint takes; it may be named by another family name, which no description has."""
        endpoints = self.endpoints()
        operation = endpoints.get(endpoint) or endpoints.get(f"gen-{endpoint.partition('-')[2]}")
        try:
            return Form() if operation is None else Form(self._fields(operation))
        except (KeyError, TypeError, ValueError):  # another service's, of another form
            return Form()

    def _fields(self, operation: Schema) -> dict[str, Field]:
        schemas_by_name: dict[str, list[Schema]] = {}
        for body in self._leaves(operation["requestBody"]["content"]["application/json"]["schema"]):
            for name, schema in body.get("properties", {}).items():
                schemas_by_name.setdefault(name, []).append(schema)
        return {name: self._field(*schemas) for name, schemas in schemas_by_name.items()}

    def _field(self, *schemas: Schema) -> Field:
        leaves = [leaf for schema in schemas for leaf in self._leaves(schema)]
        items = [leaf["items"] for leaf in leaves if "items" in leaf]
        choices = [choice for leaf in leaves for choice in leaf.get("enum", ())]
        kinds = frozenset(leaf["type"] for leaf in leaves if "type" in leaf)
        return Field(kinds, tuple(dict.fromkeys(choices)), self._field(*items) if items else None)

    def _leaves(self, schema: Schema) -> Iterator[Schema]:
        """The alternatives that a schema comes to."""
        if "$ref" in schema:
            *_, name = schema["$ref"].split("/")
            yield from self._leaves(self._document["components"]["schemas"][name])
        elif alternatives := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            for each in alternatives:
                yield from self._leaves(each)
        else:
            yield schema


def parse_json(text: str) -> Any:
    """What the text is as JSON, itself where it is none."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except ValueError:
        return text


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not in JSON")


_FIELD = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<sign>:?=)(?P<text>.*)", re.DOTALL)


def request_body(fields: Sequence[str], form: Form) -> dict[str, Any]:
    """`["steps=4", "images=@a.png", "images=@b.png"]` as a request body. Raises ValueError for what it can't read."""
    values: dict[str, list[Any]] = {}
    for field in fields:
        name, value = _read(field, form)
        values.setdefault(name, []).append(value)
    return {name: items[0] if len(items) == 1 else _flatten(items) for name, items in values.items()}


def _read(field: str, form: Form) -> tuple[str, Any]:
    parts = _FIELD.fullmatch(field)
    if parts is None:
        raise ValueError(f"{field!r} is not name=value, name=@FILE or name:=JSON")
    name, sign, text = parts["name"], parts["sign"], parts["text"]
    if sign == ":=":
        return name, _json(name, text)
    if takes_files(name):
        text = _content(name, text)
    if form.fields and name in form.fields:
        return name, form.fields[name].value(text)
    # The service does not say what it is.
    return name, [text] if name == "images" else parse_json(text)


def _json(name: str, text: str) -> Any:
    value = parse_json(text)
    if isinstance(value, str) and not text.lstrip().startswith('"'):
        raise ValueError(f"{name}:={text} is not JSON; {name}={text} sends it as text")
    return value


def _content(name: str, text: str) -> str:
    """What a field that holds a file is sent for it."""
    if text.startswith("@"):
        return encode_file(name, Path(text[1:]))
    if len(text) < 1024 and Path(text).is_file():
        raise ValueError(f"{name}={text} is the name of a file; {name}=@{text} sends what is in it")
    return text


def _flatten(values: list[Any]) -> list[Any]:
    """Of a field that was named several times."""
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


VIDEO_FIELD = "start_video"


def takes_files(field: str) -> bool:
    """Whether a field of this name holds an image, images or a video, on any endpoint."""
    return field in _image_fields() or field == VIDEO_FIELD


def encode_file(field: str, file: Path) -> str:
    """The file in base64, for this field. Raises ValueError for what the service would refuse at the first look."""
    if not file.is_file():
        raise ValueError(f"{field}: no such file: {file}")
    is_video = field == VIDEO_FIELD
    limits, expected = (VIDEOS, "an mp4 video") if is_video else (IMAGES, "a JPEG, PNG or WebP image")
    if (size := file.stat().st_size) > limits.max_bytes:
        raise ValueError(
            f"{field}: {file} has {size / 2**20:.1f} MB; at most {limits.max_bytes / 2**20:g} MB are taken"
        )
    data = file.read_bytes()
    if not (_is_mp4(data) if is_video else _is_image(data)):
        raise ValueError(f"{field}: {file} is not {expected}")
    return base64.b64encode(data).decode()


@cache
def _image_fields() -> frozenset[str]:
    from serve_app.schemas import REQUESTS  # here: it takes half a second, and few commands need it

    return frozenset(name for form in REQUESTS.values() for name in form.image_fields) | {"keyframes"}


def _is_image(data: bytes) -> bool:
    return data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (data[:4], data[8:12]) == (b"RIFF", b"WEBP")


def _is_mp4(data: bytes) -> bool:
    return data[4:8] == b"ftyp"
