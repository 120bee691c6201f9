"""Valid and invalid values of every field in `endpoints.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest
from sent_images import NO_IMAGE, PLACEHOLDERS, photo
from server_under_test import ENDPOINTS, NO_FINETUNE, RULES, Json, ServerUnderTest, minimal_body
from support.promises import promise

_common = partial(promise, "Common field types")
_DECIDED: Final = "Decided: submission"
_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "text": (7, {"a": "b"}),
    "integer": ("some", 1.5),
    "number": ("some", []),
    "flag": ("perhaps", 7),
    "choice": ("no such value", 7),
    "image": (7,),
    "other": (7, {"a": "b"}),
    "hook": ("no address", "https://example.com/".ljust(2084, "x"), "", 7),
}
_RIGHT: Final[dict[str, tuple[Any, ...]]] = {
    "text": ("a red circle",),
    "flag": (True, False),
    "image": (photo(), PLACEHOLDERS["data_uri"]),
}
_OUTSIDE_STEP: Final = 0.01
"""Distance from its bounds at which a number is tried."""


def _fields() -> Iterator[Any]:
    """Yields endpoint, name and description of each field, marked with its sentence."""
    for endpoint, spec in ENDPOINTS.items():
        tool = endpoint.rpartition("/")[2] + ": " if endpoint.startswith("gen-tools/") else ""
        section = "Decided: video" if endpoint == "gen-3-video" else spec["section"]
        for names, each in spec.get("fields", {}).items():
            for name in names.split():
                if "decided" in each:
                    yield _field(endpoint, name, each, _DECIDED, each["decided"])
                else:
                    colon = "" if each["says"].startswith("*") else ": "
                    yield _field(endpoint, name, each, section, f"{tool}`{name}`{colon}{each['says']}")
        if like := spec.get("like"):
            for names, each in ENDPOINTS[like["endpoint"]]["fields"].items():
                for name in names.split():
                    if name not in like["but"]:
                        yield _field(endpoint, name, each, section, like["says"])


def _field(endpoint: str, name: str, spec: Json, section: str, sentence: str) -> Any:
    further = [each for each in RULES["fields"] if each["field"] == f"{endpoint} {name}"]
    marks = [promise(each.get("section", "Limits"), each["says"]) for each in further]
    return pytest.param(endpoint, name, spec, marks=[promise(section, sentence), *marks], id=f"{endpoint}-{name}")


@_common("`webhook_url`: string or null, URI format, length 1 to 2083.")
@_common("`webhook_secret`: string or null, secret for webhook signature verification.")
@_common("`seed`: integer or null, reproducibility; random when omitted.")
@_common("`output_format`: enumerated string or null.")
@_common("Image inputs are base64 strings or, on endpoints that say so, http(s) URLs.")
@promise(_DECIDED, "`output_format` `webp` accepted on every route")
@promise(_DECIDED, "base64, `data:` URI, or http(s) URL, on every endpoint.")
@pytest.mark.parametrize(("endpoint", "name", "spec"), list(_fields()))
def test_field_accepts_exactly_its_documented_values(
    server: ServerUnderTest, endpoint: str, name: str, spec: Json
) -> None:
    beside = spec.get("with", {})
    if spec.get("required"):
        server.expect_rejected(endpoint, without=name, **beside)
    for value in _iter_invalid(endpoint, spec):
        server.expect_rejected(endpoint, name, **beside | {name: value})
    for value in _iter_valid(server, spec):
        paired = {spec["paired"]: None} if value is None and "paired" in spec else beside
        server.expect_accepted(endpoint, needs_approval=spec.get("needs_approval", False), **paired | {name: value})


def _iter_invalid(endpoint: str, spec: Json) -> Iterator[Any]:
    yield from (*_WRONG[spec["kind"]], *spec.get("rejects", ()))
    multiple = spec.get("multiple_of", 1)
    step = _OUTSIDE_STEP if spec["kind"] == "number" else multiple
    if "minimum" in spec:
        yield spec["minimum"] - step
    if "maximum" in spec:
        yield spec["maximum"] + step
    if multiple > 1:
        yield spec["minimum"] + 1
    # An unknown adapter is rejected before images are read.
    if minimal_body(endpoint).get("finetune_id") != NO_FINETUNE:
        yield from spec.get("unfit", [NO_IMAGE] if spec["kind"] == "image" else ())


def _iter_valid(server: ServerUnderTest, spec: Json) -> Iterator[Any]:
    yield from (spec[bound] for bound in ("minimum", "maximum") if bound in spec)
    yield from (*spec.get("accepts", ()), *_RIGHT.get(spec["kind"], ()))
    if spec["kind"] == "integer" and not spec.keys() & {"minimum", "maximum", "accepts"}:
        yield 42
    if spec["kind"] == "hook" and (hook := server.new_hook()):
        yield hook
    if spec.get("nullable"):
        yield None
