"""Request fields on the command line, in HTTPie's syntax, converted by the service's OpenAPI document.

`name=value` is converted to the field's type, `name=@FILE` sends a file if the field is an image or a video, and
`name:=JSON` sends JSON unchanged.
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

_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}


@dataclass(frozen=True)
class Field:
    types: frozenset[str]
    """JSON types that the field accepts."""
    choices: tuple[str, ...] = ()
    item: Field | None = None
    """The items of an array."""

    def convert(self, text: str) -> Any:
        """Converts `text` to a JSON value, and keeps it a string where the field accepts only that.

        The service refuses a value of a wrong type with a better message than could be given here.
        """
        value = parse_json(text)
        if "string" in self.types and (value is None or not self._accepts(value)):
            return text
        if "array" in self.types and not isinstance(value, list):
            return [self.item.convert(text) if self.item else text]
        return text if isinstance(value, str) else value

    def _accepts(self, value: Any) -> bool:
        json_type = _JSON_TYPES.get(type(value))
        return json_type in self.types or (json_type == "integer" and "number" in self.types)


@dataclass(frozen=True)
class Form:
    """The fields of an endpoint; None if the service does not describe them."""

    fields: Mapping[str, Field] | None = None

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The output formats of the endpoint; None if unknown. An endpoint without a choice makes videos."""
        if self.fields is None:
            return None
        field = self.fields.get("output_format")
        return field.choices if field else ("mp4",)


class Description:
    """A service's OpenAPI document."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def endpoints(self) -> dict[str, Schema]:
        return {
            path.removeprefix("/v1/"): methods["post"]
            for path, methods in self._document.get("paths", {}).items()
            if "generate" in methods.get("post", {}).get("tags", ())
        }

    def form(self, endpoint: str) -> Form:
        """Returns the fields of an endpoint. Its name may have a family alias, which is not in the document."""
        endpoints = self.endpoints()
        operation = endpoints.get(endpoint) or endpoints.get(f"gen-{endpoint.partition('-')[2]}")
        try:
            return Form() if operation is None else Form(self._fields(operation))
        except (KeyError, TypeError, ValueError):  # an unknown service with another kind of document
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
        types = frozenset(leaf["type"] for leaf in leaves if "type" in leaf)
        return Field(types, tuple(dict.fromkeys(choices)), self._field(*items) if items else None)

    def _leaves(self, schema: Schema) -> Iterator[Schema]:
        """Yields the alternatives of a schema, with references resolved."""
        if "$ref" in schema:
            *_, name = schema["$ref"].split("/")
            yield from self._leaves(self._document["components"]["schemas"][name])
        elif alternatives := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            for each in alternatives:
                yield from self._leaves(each)
        else:
            yield schema


def parse_json(text: str) -> Any:
    """Parses a text as JSON; returns the text itself if it is none."""
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except ValueError:
        return text


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_FIELD = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<sign>:?=)(?P<text>.*)", re.DOTALL)


def request_body(fields: Sequence[str], form: Form) -> dict[str, Any]:
    """Builds a request body from `["steps=4", "images=@a.png", "images=@b.png"]`. Raises ValueError."""
    body: dict[str, Any] = {}
    for field in fields:
        name, value = _read(field, form)
        body[name] = [*_as_list(body[name]), *_as_list(value)] if name in body else value
    return body


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _read(field: str, form: Form) -> tuple[str, Any]:
    parts = _FIELD.fullmatch(field)
    if parts is None:
        raise ValueError(f"{field!r} is not name=value, name=@FILE or name:=JSON")
    name, sign, text = parts["name"], parts["sign"], parts["text"]
    if sign == ":=":
        return name, _json(name, text)
    if holds_files(name):
        text = _content(name, text)
    if form.fields and name in form.fields:
        return name, form.fields[name].convert(text)
    # The service does not describe the field.
    return name, [text] if name == "images" else parse_json(text)


def _json(name: str, text: str) -> Any:
    value = parse_json(text)
    if isinstance(value, str) and not text.lstrip().startswith('"'):
        raise ValueError(f"{name}:={text} is not JSON; {name}={text} sends it as text")
    return value


def _content(name: str, text: str) -> str:
    """Returns the value of an image or video field: a file's content, or the text itself."""
    if text.startswith("@"):
        return encode_file(name, Path(text[1:]))
    if len(text) < 1024 and Path(text).is_file():
        raise ValueError(f"{name}={text} is the name of a file; {name}=@{text} sends its content")
    return text


VIDEO_FIELD = "start_video"


def holds_files(field: str) -> bool:
    """Tells whether a field of this name holds images or a video on any endpoint."""
    return field in _image_fields() or field == VIDEO_FIELD


def encode_file(field: str, file: Path) -> str:
    """Encodes a file in base64. Raises ValueError for a size or format that the service would refuse."""
    if not file.is_file():
        raise ValueError(f"{field}: no such file: {file}")
    is_video = field == VIDEO_FIELD
    limits, expected = (VIDEOS, "an mp4 video") if is_video else (IMAGES, "a JPEG, PNG or WebP image")
    if (size := file.stat().st_size) > limits.max_bytes:
        raise ValueError(f"{field}: {file} has {size / 2**20:.1f} MB; the maximum is {limits.max_bytes / 2**20:g} MB")
    data = file.read_bytes()
    if not (_is_mp4(data) if is_video else _is_image(data)):
        raise ValueError(f"{field}: {file} is not {expected}")
    return base64.b64encode(data).decode()


@cache
def _image_fields() -> frozenset[str]:
    from serve_app.schemas import REQUESTS  # takes half a second, and few commands need it

    return frozenset(name for form in REQUESTS.values() for name in form.image_fields) | {"keyframes"}


def _is_image(data: bytes) -> bool:
    return data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (data[:4], data[8:12]) == (b"RIFF", b"WEBP")


def _is_mp4(data: bytes) -> bool:
    return data[4:8] == b"ftyp"
