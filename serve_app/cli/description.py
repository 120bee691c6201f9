"""What a service says of itself in its OpenAPI description: its endpoints, and what each takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
        read = as_json(text)
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
        found: dict[str, list[Schema]] = {}
        for body in self._leaves(operation["requestBody"]["content"]["application/json"]["schema"]):
            for name, schema in body.get("properties", {}).items():
                found.setdefault(name, []).append(schema)
        return {name: self._field(*schemas) for name, schemas in found.items()}

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


def as_json(text: str) -> Any:
    """What the text is as JSON, itself where it is none."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except ValueError:
        return text


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not in JSON")
