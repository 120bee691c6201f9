"""Every field of every endpoint in `endpoints.yaml`: what it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from sent_images import NO_IMAGE, photo
from server_under_test import ENDPOINTS, NO_FINETUNE, Json, ServerUnderTest, least
from support.promises import promise

_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "text": (7, {"a": "b"}),
    "integer": ("some", 1.5),
    "number": ("some", []),
    "flag": ("perhaps", 7),
    "choice": ("no such value", 7),
    "image": (7,),
    "other": (7, {"a": "b"}),
    "hook": ("no address", "http://127.0.0.1/" + "x" * 2070, "", 7),
}
_RIGHT: Final[dict[str, tuple[Any, ...]]] = {
    "text": ("a red circle",),
    "flag": (True, False),
    "image": (photo(),),
}
_OUTSIDE_STEP: Final = 0.01
"""How far beyond its bounds a number is tried."""


def _fields() -> Iterator[Any]:
    """Endpoint, name and description of each field, marked with what is said of it."""
    for endpoint, spec in ENDPOINTS.items():
        tool = endpoint.rpartition("/")[2] + ": " if endpoint.startswith("gen-tools/") else ""
        section = "Decided: video" if endpoint == "gen-3-video" else spec["section"]
        for names, each in spec.get("fields", {}).items():
            for name in names.split():
                says = each["says"]
                sentence = f"{tool}`{name}`{says}" if says.startswith("*") else f"{tool}`{name}`: {says}"
                yield pytest.param(endpoint, name, each, marks=promise(section, sentence), id=f"{endpoint}-{name}")
        if like := spec.get("like"):
            for names, each in ENDPOINTS[like["endpoint"]]["fields"].items():
                mark = promise(section, like["says"])
                for name in names.split():
                    if name not in like["but"]:
                        yield pytest.param(endpoint, name, each, marks=mark, id=f"{endpoint}-{name}")


@pytest.mark.parametrize(("endpoint", "name", "spec"), list(_fields()))
def test_a_field_takes_what_is_said_and_no_more(server: ServerUnderTest, endpoint: str, name: str, spec: Json) -> None:
    beside = spec.get("beside", {})
    if spec.get("required"):
        server.refuses(endpoint, without=name, **beside)
    for value in _iter_invalid(endpoint, spec):
        server.refuses(endpoint, name, **beside | {name: value})
    for value in _iter_valid(server, spec):
        paired = {spec["paired"]: None} if value is None and "paired" in spec else beside
        server.takes(endpoint, gated=spec.get("gated", False), **paired | {name: value})


def _iter_invalid(endpoint: str, spec: Json) -> Iterator[Any]:
    yield from (*_WRONG[spec["kind"]], *spec.get("refuses", ()))
    multiple = spec.get("of", 1)
    step = _OUTSIDE_STEP if spec["kind"] == "number" else multiple
    if "least" in spec:
        yield spec["least"] - step
    if "most" in spec:
        yield spec["most"] + step
    if multiple > 1:
        yield spec["least"] + 1
    # A tuned model that does not exist is told before images are looked at.
    if least(endpoint).get("finetune_id") != NO_FINETUNE:
        yield from spec.get("unfit", [NO_IMAGE] if spec["kind"] == "image" else ())


def _iter_valid(server: ServerUnderTest, spec: Json) -> Iterator[Any]:
    yield from (spec[bound] for bound in ("least", "most") if bound in spec)
    yield from (*spec.get("takes", ()), *_RIGHT.get(spec["kind"], ()))
    if spec["kind"] == "integer" and not spec.keys() & {"least", "most", "takes"}:
        yield 42
    if spec["kind"] == "hook" and (hook := server.hook()):
        yield hook
    if spec.get("nullable"):
        yield None
