"""What the requests before generation 3 have in common."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.requests import REQUESTS
from serve_app.requests.fields import GenerationRequest
from serve_app.requests.tolerant import with_opposite

MINIMAL: dict[str, dict[str, Any]] = {
    "gen2-max": {"prompt": "x"},
    "gen2-pro": {"prompt": "x"},
    "kontext": {"prompt": "x"},
    "pro": {},
    "fill": {"image": "a"},
    "canny": {"prompt": "x", "control_image": "a"},
    "canny-control": {"prompt": "x", "control_image": "a"},
}
SIZES = [(640, 480), (640, 480)]


def _request(name: str, **body: Any) -> GenerationRequest:
    return REQUESTS[name].model_validate(MINIMAL[name] | body)


@pytest.mark.parametrize("name", MINIMAL)
def test_unknown_fields_leave_no_trace(name: str) -> None:
    assert _request(name, more=1, raw=True) == _request(name)


@pytest.mark.parametrize("name", MINIMAL)
def test_plans_are_of_plain_text(name: str) -> None:
    assert _request(name).plan(SIZES).structured is False
    assert REQUESTS["image-klein"].model_validate({"prompt": "x"}).plan([]).structured is True


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {}),
        ({"other": True}, {"other": True, "own": False}),
        ({"other": False}, {"other": False, "own": True}),
        ({"own": False, "other": False}, {"own": False, "other": False}),
        ({"other": "no"}, {"other": "no"}),
        ("text", "text"),
    ],
)
def test_opposites(body: Any, expected: Any) -> None:
    assert with_opposite(body, "own", "other") == expected
