"""Every field of every endpoint in `endpoints.yaml`: what it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from sent_pictures import NO_PICTURE, photo
from server_under_test import ENDPOINTS, NO_FINETUNE, Json, ServerUnderTest, least
from support.promises import promise

_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "text": (7, {"a": "b"}),
    "integer": ("some", 1.5),
    "number": ("some", []),
    "flag": ("perhaps", 7),
    "choice": ("no such value", 7),
    "picture": (7,),
    "other": (7, {"a": "b"}),
    "hook": ("no address", "http://127.0.0.1/" + "x" * 2070, "", 7),
}
_RIGHT: Final[dict[str, tuple[Any, ...]]] = {
    "text": ("a red circle",),
    "flag": (True, False),
    "picture": (photo(),),
}
_BEYOND: Final = 0.01
"""How far beyond its bounds a number is tried."""


def _fields() -> Iterator[Any]:
    """Endpoint, name and description of each field, marked with what is said of it."""
    for endpoint, told in ENDPOINTS.items():
        tool = endpoint.rpartition("/")[2] + ": " if endpoint.startswith("gen-tools/") else ""
        section = "Decided: video" if endpoint == "gen-3-video" else told["section"]
        for names, each in told.get("fields", {}).items():
            for name in names.split():
                says = each["says"]
                sentence = f"{tool}`{name}`{says}" if says.startswith("*") else f"{tool}`{name}`: {says}"
                yield pytest.param(endpoint, name, each, marks=promise(section, sentence), id=f"{endpoint}-{name}")
        if like := told.get("like"):
            for names, each in ENDPOINTS[like["endpoint"]]["fields"].items():
                mark = promise(section, like["says"])
                for name in names.split():
                    if name not in like["but"]:
                        yield pytest.param(endpoint, name, each, marks=mark, id=f"{endpoint}-{name}")


@pytest.mark.parametrize(("endpoint", "name", "told"), list(_fields()))
def test_a_field_takes_what_is_said_and_no_more(server: ServerUnderTest, endpoint: str, name: str, told: Json) -> None:
    beside = told.get("beside", {})
    if told.get("required"):
        server.refuses(endpoint, without=name, **beside)
    for value in _refused(endpoint, told):
        server.refuses(endpoint, name, **beside | {name: value})
    for value in _taken(server, told):
        paired = {told["paired"]: None} if value is None and "paired" in told else beside
        server.takes(endpoint, gated=told.get("gated", False), **paired | {name: value})


def _refused(endpoint: str, told: Json) -> Iterator[Any]:
    yield from (*_WRONG[told["kind"]], *told.get("refuses", ()))
    multiple = told.get("of", 1)
    step = _BEYOND if told["kind"] == "number" else multiple
    if "least" in told:
        yield told["least"] - step
    if "most" in told:
        yield told["most"] + step
    if multiple > 1:
        yield told["least"] + 1
    # A tuned model that does not exist is told before pictures are looked at.
    if least(endpoint).get("finetune_id") != NO_FINETUNE:
        yield from told.get("unfit", [NO_PICTURE] if told["kind"] == "picture" else ())


def _taken(server: ServerUnderTest, told: Json) -> Iterator[Any]:
    yield from (told[bound] for bound in ("least", "most") if bound in told)
    yield from (*told.get("takes", ()), *_RIGHT.get(told["kind"], ()))
    if told["kind"] == "integer" and not told.keys() & {"least", "most", "takes"}:
        yield 42
    if told["kind"] == "hook" and (hook := server.hook()):
        yield hook
    if told.get("nullable"):
        yield None
