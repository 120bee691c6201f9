"""The fields of a request, as they are written at the command line after HTTPie's fashion.

`name=value` takes the type that the endpoint gives to the field, `name=@FILE` sends a file where the field holds one,
`name:=JSON` sends JSON as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serve_app.cli.description import Form, as_json
from serve_app.cli.input_files import encoded, takes_files

_FIELD = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<sign>:?=)(?P<text>.*)", re.DOTALL)


def request_body(fields: Sequence[str], form: Form) -> dict[str, Any]:
    """`["steps=4", "images=@a.png", "images=@b.png"]` as a request body. Raises ValueError for what it can't read."""
    values: dict[str, list[Any]] = {}
    for field in fields:
        name, value = _read(field, form)
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else _joined(found) for name, found in values.items()}


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
    return name, [text] if name == "images" else as_json(text)


def _json(name: str, text: str) -> Any:
    value = as_json(text)
    if isinstance(value, str) and not text.lstrip().startswith('"'):
        raise ValueError(f"{name}:={text} is not JSON; {name}={text} sends it as text")
    return value


def _content(name: str, text: str) -> str:
    """What a field that holds a file is sent for it."""
    if text.startswith("@"):
        return encoded(name, Path(text[1:]))
    if len(text) < 1024 and Path(text).is_file():
        raise ValueError(f"{name}={text} is the name of a file; {name}=@{text} sends what is in it")
    return text


def _joined(values: list[Any]) -> list[Any]:
    """Of a field that was named several times."""
    return [item for value in values for item in (value if isinstance(value, list) else [value])]
