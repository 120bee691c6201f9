from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.media.geometry import RATIOS, TIERS
from serve_app.requests.image_klein import ImageKleinRequest

LAYOUT = '[{"id": "cat_1", "bbox": [0, 0, 10, 10], "desc": "a cat"}]'


def _request(**body: Any) -> ImageKleinRequest:
    return ImageKleinRequest.model_validate({"prompt": "a cat", **body})


def _problems(body: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        ImageKleinRequest.model_validate(body)
    return [(error["loc"], error["type"]) for error in refused.value.errors()]


def test_nulls_mean_not_set() -> None:
    optional = set(ImageKleinRequest.model_fields) - {"prompt"}
    assert _request(**dict.fromkeys(optional)) == _request()


@pytest.mark.parametrize(
    "body",
    [
        {"images": ["x"] * 10},
        {"width": 64, "height": 64},
        {"width": 4736, "height": 3552},
        {"safety_tolerance": 0},
        {"safety_tolerance": 7},
        {"output_format": "webp"},
        {"steps": 1},
        {"steps": 16},
        {"prompt": f"A room {LAYOUT}"},
        *({"aspect_ratio": name} for name in RATIOS),
        *({"resolution": name} for name in TIERS),
        {"width": 6256, "height": 64},
        {"width": 64, "height": 6256},
    ],
)
def test_accepted(body: dict[str, Any]) -> None:
    request = _request(**body)
    assert {name: getattr(request, name) for name in body} == body


@pytest.mark.parametrize(
    ("body", "field", "kind"),
    [
        ({"prompt": 'x [{"id": 1}]'}, "prompt", "layout"),
        ({"images": []}, "images", "too_short"),
        ({"images": ["x"] * 11}, "images", "too_long"),
        ({"resolution": "8k"}, "resolution", "literal_error"),
        ({"width": 63, "height": 64}, "width", "greater_than_equal"),
        ({"width": 64, "height": 63}, "height", "greater_than_equal"),
        ({"width": 6257, "height": 64}, "width", "less_than_equal"),
        ({"width": 64, "height": 6257}, "height", "less_than_equal"),
        ({"width": 64}, "height", "missing"),
        ({"height": 64}, "width", "missing"),
        ({"width": 6256, "height": 2689}, "height", "area_too_large"),
        ({"seed": 4294967296}, "seed", "less_than_equal"),
        ({"safety_tolerance": -1}, "safety_tolerance", "greater_than_equal"),
        ({"safety_tolerance": 8}, "safety_tolerance", "less_than_equal"),
        ({"output_format": "gif"}, "output_format", "literal_error"),
        ({"steps": 0}, "steps", "greater_than_equal"),
        ({"steps": 17}, "steps", "less_than_equal"),
        ({"steps": False}, "steps", "int_type"),
        ({"user": ""}, "user", "string_too_short"),
        ({"webhook_url": "mailto:a@example.com"}, "webhook_url", "url_refused"),
        ({"webhook_secret": "whsec_?"}, "webhook_secret", "webhook_secret"),
        ({"prompt": " \n\t\u3000"}, "prompt", "prompt_blank"),
        ({"aspect_ratio": "16x9"}, "aspect_ratio", "literal_error"),
        ({"width": True, "height": 64}, "width", "int_type"),
        ({"negative_prompt": "x"}, "negative_prompt", "extra_forbidden"),
    ],
)
def test_refused_at_the_field(body: dict[str, Any], field: str, kind: str) -> None:
    assert _problems({"prompt": "a cat", **body}) == [((field,), kind)]


def test_the_prompt_is_required() -> None:
    assert _problems({}) == [(("prompt",), "missing")]


def test_a_bad_picture_is_named_by_its_place() -> None:
    assert _problems({"prompt": "x", "images": ["x", ""]}) == [(("images", 1), "string_too_short")]


def test_all_problems_are_reported_at_once() -> None:
    problems = _problems({"prompt": "", "seed": -1, "steps": 99})
    assert [loc for loc, _ in problems] == [("prompt",), ("seed",), ("steps",)]


def test_plan_with_an_open_ratio() -> None:
    plan = _request(seed=5, steps=4, output_format="png").plan([])
    assert (plan.prompt, plan.seed, plan.steps, plan.output_format) == ("a cat", 5, 4, "png")
    assert (plan.area, plan.width, plan.height) == (TIERS["1k"], None, None)


def test_plan_of_an_edit_follows_the_first_reference() -> None:
    plan = _request(images=["a", "b"]).plan([(1001, 667), (50, 50)])
    assert (plan.width, plan.height) == (1001, 667)


def test_a_missing_seed_is_drawn_and_zero_is_kept() -> None:
    assert len({_request().plan([]).seed for _ in range(20)}) > 1
    assert _request(seed=0).plan([]).seed == 0
