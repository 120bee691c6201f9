"""What the requests before generation 3 have in common, and what the tools among them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.schemas import REQUESTS
from serve_app.schemas.fields import MAX_SEED, GenerationRequest
from serve_app.schemas.tolerant import with_opposite

TOOLS: dict[str, dict[str, Any]] = {
    "erase": {"image": "a", "mask": "b"},
    "outpainting": {"input_image": "a", "width": 640, "height": 480},
    "vto-v1": {"person": "a", "garment": "b"},
    "vto-v2": {"person": "a", "garment": "b"},
    "deblur": {"image": "a"},
}
MINIMAL: dict[str, dict[str, Any]] = {
    "gen2-max": {"prompt": "x"},
    "gen2-pro": {"prompt": "x"},
    "kontext": {"prompt": "x"},
    "pro": {},
    "fill": {"image": "a"},
    "canny": {"prompt": "x", "control_image": "a"},
    "canny-control": {"prompt": "x", "control_image": "a"},
    **TOOLS,
}
SIZES = [(640, 480), (640, 480)]


def _request(name: str, **body: Any) -> GenerationRequest:
    return REQUESTS[name].model_validate(MINIMAL[name] | body)


def _problems(name: str, **body: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        _request(name, **body)
    return [(error["loc"], error["type"]) for error in refused.value.errors()]


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, body in TOOLS.items() for field in body])
def test_what_is_needed(name: str, field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        REQUESTS[name].model_validate({key: value for key, value in TOOLS[name].items() if key != field})
    assert [(error["loc"], error["type"]) for error in refused.value.errors()] == [((field,), "missing")]
    for value in (None, "", ["a"]):
        assert _problems(name, **{field: value})


@pytest.mark.parametrize("name", MINIMAL)
def test_nulls_mean_not_set(name: str) -> None:
    optional = set(REQUESTS[name].model_fields) - set(MINIMAL[name])
    assert _request(name, **dict.fromkeys(optional)) == _request(name)


@pytest.mark.parametrize("name", MINIMAL)
def test_only_outpainting_refuses_unknown_fields(name: str) -> None:
    if name == "outpainting":
        assert _problems(name, more=1) == [(("more",), "extra_forbidden")]
    else:
        assert _request(name, more=1, raw_=True) == _request(name)


@pytest.mark.parametrize("name", TOOLS)
def test_levels_of_safety(name: str) -> None:
    for level in (None, 0, 6, 3.0):
        assert _request(name, safety_tolerance=level).safety_tolerance == level
    for level in (-1, 7, 1.5, "2", True):
        assert [loc for loc, _ in _problems(name, safety_tolerance=level)] == [("safety_tolerance",)]


@pytest.mark.parametrize("name", MINIMAL)
def test_wide_seeds_are_kept_and_random_ones_are_narrow(name: str) -> None:
    for seed in (0, 2**64 - 1):
        assert _request(name, seed=seed).plan(SIZES).seed == seed
    assert all(0 <= _request(name, seed=seed).plan(SIZES).seed <= MAX_SEED for seed in [None] * 20 + [-1])
    for seed in (2**64, 1.5, "7", True):
        assert _problems(name, seed=seed)


@pytest.mark.parametrize("name", TOOLS)
def test_formats_of_the_result(name: str) -> None:
    assert _request(name).plan(SIZES).output_format == ("jpeg" if name.startswith("vto") else "png")
    for sent, kind in (("jpeg", "jpeg"), ("png", "png"), ("webp", "webp"), ("JPG", "jpeg")):
        assert _request(name, output_format=sent).plan(SIZES).output_format == kind
    assert _problems(name, output_format="gif")


@pytest.mark.parametrize("name", TOOLS)
def test_plans_of_tools_leave_the_work_to_the_recipe(name: str) -> None:
    plan = _request(name).plan(SIZES)
    assert (plan.prompt, plan.steps, plan.guidance, plan.rewrite, plan.transparent) == ("", None, None, False, False)
    assert (plan.width, plan.height, plan.area) == (640, 480, 640 * 480)


@pytest.mark.parametrize("name", MINIMAL)
def test_plans_are_of_plain_text(name: str) -> None:
    assert _request(name).plan(SIZES).structured is False
    assert REQUESTS["image-klein"].model_validate({"prompt": "x"}).plan([]).structured is True


@pytest.mark.parametrize("name", [*MINIMAL, "image-klein"])
def test_every_field_is_described(name: str) -> None:
    for field, info in REQUESTS[name].model_json_schema()["properties"].items():
        assert info["description"], field


@pytest.mark.parametrize("name", MINIMAL)
def test_pictures_stay_out_of_repr_and_errors(name: str) -> None:
    pictures = {field: f"hush{n}" for n, field in enumerate(REQUESTS[name].image_fields)}
    request = _request(name, **pictures)
    assert "hush" not in f"{request!r}"
    assert request.image_inputs()
    with pytest.raises(ValidationError) as refused:
        _request(name, **{field: [{value: 1}] for field, value in pictures.items()})
    assert "hush" not in str(refused.value)


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
