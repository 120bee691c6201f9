"""Layouts: a prompt may end with a JSON array that places each element.

Two forms, never mixed in one array:

- generate: `{"id": "cat_1", "bbox": [300, 250, 900, 700], "desc": "a sleeping cat"}`
- edit: `{"id": "cat_1", "from": "ref_image_0", "src_bbox": [..], "tgt_bbox": [..], "desc": ".."}`, in which `tgt_bbox`
  null removes the element and `from` null describes a new one; both null would say nothing and is refused. `from` may
  also name an image as the prompt itself does: `<ref_image_0>`.

Boxes are `[top, left, bottom, right]`, whole numbers 0 to 1000, top above bottom and left of right. Every array that
ends the prompt and has items is a layout, and an error where it breaks the rules. An empty array, and text that is no
JSON, are plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, NoReturn

from deployments.contract.request import Box, LayoutRow

MAX_COORDINATE: Final = 1000

_GENERATE_KEYS: Final = ("id", "bbox", "desc")
_EDIT_KEYS: Final = ("id", "from", "src_bbox", "tgt_bbox", "desc")
_STARTS: Final = (re.compile(r"\[(?=\s*\{)"), re.compile(r"\[(?=\s*[^\s{\]])"))
"""Starts of arrays: those whose first item is an object are tried first."""

_MAX_STARTS: Final = 32
"""Maximum starts of each pattern that are tried; bounds the work on hostile text."""


class LayoutError(ValueError):
    """The prompt ends with an array that is no valid layout. Clients see the message."""


def parse_layout(prompt: str) -> tuple[LayoutRow, ...]:
    """Returns the rows at the end of `prompt` in their order; empty for plain text. Raises LayoutError."""
    _, items = _split(prompt)
    keys = _GENERATE_KEYS if items and isinstance(items[0], dict) and "bbox" in items[0] else _EDIT_KEYS
    rows: list[LayoutRow] = []
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise LayoutError(
                f"layout row {index} must be an object, as an array that ends the prompt is a layout; if it is meant "
                "as text, let something follow it, a full stop for instance"
            )
        _check_keys(item, keys, index)
        rows.append(_generate_row(item, index) if keys is _GENERATE_KEYS else _edit_row(item, index))
    names = [row.name for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise LayoutError(f"the id {name!r} occurs more than once in the layout")
    return tuple(rows)


def check_references(rows: Sequence[LayoutRow], count: int) -> None:
    """Raises LayoutError if a row takes its element from an image that is not one of the `count` sent."""
    references = {f"ref_image_{index}" for index in range(count)}
    for index, row in enumerate(rows):
        if row.source is not None and row.source not in references:
            names = ", ".join(sorted(references)) or "there is none"
            raise LayoutError(f"from of layout row {index} must name a reference image that was sent: {names}")


def caption(prompt: str) -> str:
    """Returns the prompt without the array at its end, valid or not."""
    return _split(prompt)[0]


def _split(prompt: str) -> tuple[str, list[Any]]:
    """Returns the caption and the items of the array that ends the prompt."""
    if prompt.rstrip().endswith("]"):
        for start in chain.from_iterable(islice(each.finditer(prompt), _MAX_STARTS) for each in _STARTS):
            try:
                items, end = _DECODER.raw_decode(prompt, start.start())
            except (ValueError, RecursionError):
                continue
            if not prompt[end:].strip():
                return prompt[: start.start()].rstrip(), items
    return prompt, []


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _generate_row(item: Mapping[str, Any], index: int) -> LayoutRow:
    return LayoutRow(
        name=_text(item, "id", index), target=_box(item, "bbox", index), description=_text(item, "desc", index)
    )


def _edit_row(item: Mapping[str, Any], index: int) -> LayoutRow:
    row = LayoutRow(
        name=_text(item, "id", index),
        target=None if item["tgt_bbox"] is None else _box(item, "tgt_bbox", index),
        description=_text(item, "desc", index),
        source=None if item["from"] is None else _strip_brackets(_text(item, "from", index)),
        source_box=None if item["src_bbox"] is None else _box(item, "src_bbox", index),
    )
    if row.source is None and row.target is None:
        raise LayoutError(f"layout row {index} has neither a from nor a tgt_bbox, so there is nothing to do")
    return row


def _check_keys(item: Mapping[str, Any], keys: tuple[str, ...], index: int) -> None:
    if set(item) != set(keys):
        raise LayoutError(
            f"layout row {index} must have exactly the keys {', '.join(keys)}; rows that generate have "
            f"{', '.join(_GENERATE_KEYS)}, rows that edit have {', '.join(_EDIT_KEYS)}, and the two don't mix"
        )


def _text(item: Mapping[str, Any], key: str, index: int) -> str:
    value = item[key]
    if not isinstance(value, str) or (key != "desc" and not value):
        raise LayoutError(f"{key} of layout row {index} must be a {'' if key == 'desc' else 'non-empty '}string")
    return value


def _strip_brackets(name: str) -> str:
    return name[1:-1] if name.startswith("<") and name.endswith(">") else name


def _box(item: Mapping[str, Any], key: str, index: int) -> Box:
    value = item[key]
    # `type` rather than `isinstance`, as True is an int as well.
    if not isinstance(value, list) or len(value) != 4 or any(type(number) is not int for number in value):
        raise LayoutError(f"{key} of layout row {index} must be four whole numbers: [top, left, bottom, right]")
    top, left, bottom, right = value
    if not (0 <= top < bottom <= MAX_COORDINATE and 0 <= left < right <= MAX_COORDINATE):
        raise LayoutError(
            f"{key} of layout row {index} must be within 0 to {MAX_COORDINATE}, with top < bottom and left < right"
        )
    return top, left, bottom, right
