"""What the requests before generation 3 have in common."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.requests import REQUESTS
from serve_app.requests.fields import MAX_SEED, GenerationRequest
from serve_app.requests.tolerant import TolerantRequest, with_opposite
from serve_app.requests.tools import ToolRequest

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


def test_all_but_generation_3_are_tolerant() -> None:
    tolerant = {name for name, kind in REQUESTS.items() if issubclass(kind, TolerantRequest)}
    tools = {name for name, kind in REQUESTS.items() if issubclass(kind, ToolRequest)}
    assert tolerant - tools == set(MINIMAL)
    assert tools < tolerant


@pytest.mark.parametrize("name", MINIMAL)
def test_unknown_fields_leave_no_trace(name: str) -> None:
    assert _request(name, more=1, raw=True) == _request(name)


@pytest.mark.parametrize("name", MINIMAL)
def test_nulls_mean_not_set(name: str) -> None:
    optional = set(REQUESTS[name].model_fields) - set(MINIMAL[name])
    assert _request(name, **dict.fromkeys(optional)) == _request(name)


@pytest.mark.parametrize("name", MINIMAL)
def test_wide_seeds_are_kept_and_random_ones_are_narrow(name: str) -> None:
    assert _request(name, seed=2**64 - 1).plan(SIZES).seed == 2**64 - 1
    assert _request(name, seed=0).plan(SIZES).seed == 0
    assert all(_request(name).plan(SIZES).seed <= MAX_SEED for _ in range(20))
    assert 0 <= _request(name, seed=-1).plan(SIZES).seed <= MAX_SEED
    for seed in (2**64, 1.5, -1.5, "7", True):
        with pytest.raises(ValidationError):
            _request(name, seed=seed)


@pytest.mark.parametrize("name", MINIMAL)
def test_plans_are_of_plain_text(name: str) -> None:
    assert _request(name).plan(SIZES).structured is False
    assert REQUESTS["image-klein"].model_validate({"prompt": "x"}).plan([]).structured is True


@pytest.mark.parametrize("name", MINIMAL)
def test_every_field_is_described(name: str) -> None:
    for field, info in REQUESTS[name].model_json_schema()["properties"].items():
        assert info["description"], field


@pytest.mark.parametrize("name", MINIMAL)
def test_pictures_stay_out_of_repr(name: str) -> None:
    pictures = {field: f"hush{n}" for n, field in enumerate(REQUESTS[name].image_fields)}
    request = _request(name, **pictures)
    assert "hush" not in f"{request!r}"
    assert request.image_inputs()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {}),
        ({"other": True}, {"other": True, "own": False}),
        ({"other": False}, {"other": False, "own": True}),
        ({"own": None, "other": False}, {"other": False, "own": True}),
        ({"own": False, "other": False}, {"own": False, "other": False}),
        ({"other": None}, {"other": None}),
        ({"other": "no"}, {"other": "no"}),
        ("text", "text"),
        (None, None),
    ],
)
def test_opposites(body: Any, expected: Any) -> None:
    assert with_opposite(body, "own", "other") == expected
