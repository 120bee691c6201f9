"""What the tools have in common."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.requests import REQUESTS
from serve_app.requests.fields import MAX_SEED
from serve_app.requests.tools import ToolRequest

MINIMAL: dict[str, dict[str, Any]] = {
    "erase": {"image": "a", "mask": "b"},
    "outpainting": {"input_image": "a", "width": 640, "height": 480},
    "vto-v1": {"person": "a", "garment": "b"},
    "vto-v2": {"person": "a", "garment": "b"},
    "deblur": {"image": "a"},
}
SIZES = [(640, 480), (640, 480)]


def _request(name: str, **body: Any) -> ToolRequest:
    request = REQUESTS[name].model_validate(MINIMAL[name] | body)
    assert isinstance(request, ToolRequest)
    return request


def _problems(name: str, **body: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        _request(name, **body)
    return [(error["loc"], error["type"]) for error in refused.value.errors()]


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, body in MINIMAL.items() for field in body])
def test_what_is_needed(name: str, field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        REQUESTS[name].model_validate({key: value for key, value in MINIMAL[name].items() if key != field})
    assert [(error["loc"], error["type"]) for error in refused.value.errors()] == [((field,), "missing")]
    assert _problems(name, **{field: None})
    assert _problems(name, **{field: ""})
    assert _problems(name, **{field: ["a"]})


@pytest.mark.parametrize("name", MINIMAL)
def test_nulls_mean_not_set(name: str) -> None:
    optional = set(REQUESTS[name].model_fields) - set(MINIMAL[name])
    assert _request(name, **dict.fromkeys(optional)) == _request(name)


@pytest.mark.parametrize("name", MINIMAL)
def test_only_outpainting_refuses_unknown_fields(name: str) -> None:
    if name == "outpainting":
        assert _problems(name, more=1) == [(("more",), "extra_forbidden")]
        assert _problems(name, prompt="x") == [(("prompt",), "extra_forbidden")]
    else:
        assert _request(name, more=1, steps="x") == _request(name)


@pytest.mark.parametrize("name", MINIMAL)
def test_levels_of_safety(name: str) -> None:
    assert _request(name).safety_tolerance is None
    for level in (0, 6, 3.0):
        assert _request(name, safety_tolerance=level).safety_tolerance == level
    for level in (-1, 7, 1.5, "2", True):
        assert [loc for loc, _ in _problems(name, safety_tolerance=level)] == [("safety_tolerance",)]


@pytest.mark.parametrize("name", MINIMAL)
def test_seeds(name: str) -> None:
    assert _request(name, seed=2**64 - 1).plan(SIZES).seed == 2**64 - 1
    assert _request(name, seed=0).plan(SIZES).seed == 0
    assert all(_request(name).plan(SIZES).seed <= MAX_SEED for _ in range(20))
    assert 0 <= _request(name, seed=-1).plan(SIZES).seed <= MAX_SEED
    for seed in (2**64, 1.5, "7", True):
        assert _problems(name, seed=seed)


@pytest.mark.parametrize("name", MINIMAL)
def test_formats_of_the_result(name: str) -> None:
    assert _request(name).plan(SIZES).output_format == ("jpeg" if name.startswith("vto") else "png")
    for kind in ("jpeg", "png", "webp"):
        assert _request(name, output_format=kind).plan(SIZES).output_format == kind
    assert _request(name, output_format="JPG").plan(SIZES).output_format == "jpeg"
    assert _problems(name, output_format="gif")


@pytest.mark.parametrize("name", MINIMAL)
def test_plans_leave_the_work_to_the_recipe(name: str) -> None:
    plan = _request(name).plan(SIZES)
    assert (plan.prompt, plan.steps, plan.guidance) == ("", None, None)
    assert (plan.structured, plan.rewrite, plan.transparent) == (False, False, False)
    assert (plan.width, plan.height, plan.area) == (640, 480, 640 * 480)


@pytest.mark.parametrize("name", MINIMAL)
def test_every_field_is_described(name: str) -> None:
    for field, info in REQUESTS[name].model_json_schema()["properties"].items():
        assert info["description"], field
        assert info["examples"], field


@pytest.mark.parametrize("name", MINIMAL)
def test_pictures_stay_out_of_repr_and_errors(name: str) -> None:
    pictures = {field: f"hush{n}" for n, field in enumerate(REQUESTS[name].image_fields)}
    request = _request(name, **pictures)
    assert "hush" not in f"{request!r}"
    assert [each.value for each in request.image_inputs()] == list(pictures.values())
    with pytest.raises(ValidationError) as refused:
        _request(name, **{field: [value] for field, value in pictures.items()})
    assert "hush" not in str(refused.value)
