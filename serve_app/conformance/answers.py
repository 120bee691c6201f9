"""What an answer tells, where its form is that of the interface; otherwise the server is broken."""

from __future__ import annotations

from typing import Any, TypeAlias

import httpx2

from serve_app.conformance.verdicts import Broken, expect

Json: TypeAlias = dict[str, Any]


def json_of(response: httpx2.Response) -> Json:
    """Raises Broken unless the answer is an object."""
    try:
        told = response.json()
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise Broken("a JSON object")
    return told


def problems(response: httpx2.Response) -> list[Json]:
    """The entries of a validation error body. Raises Broken where it is none."""
    entries = json_of(response).get("detail")
    if not isinstance(entries, list) or not entries:
        raise Broken("detail, an array with one entry per problem")
    for entry in entries:
        well_formed = (
            isinstance(entry, dict)
            and isinstance(entry.get("loc"), list)
            and all(isinstance(part, str) for part in entry["loc"])
            and isinstance(entry.get("msg"), str)
            and isinstance(entry.get("type"), str)
        )
        expect(well_formed, "detail[] of loc (array of strings), msg and type (strings)")
    return entries


def detail(response: httpx2.Response, status: int) -> str:
    """The text of an error that is no 422. Raises Broken for another status or form."""
    expect(response.status_code == status, f"HTTP {status}")
    text = json_of(response).get("detail")
    if not isinstance(text, str):
        raise Broken("detail, a string")
    return text
