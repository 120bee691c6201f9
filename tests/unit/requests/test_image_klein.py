from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.inputs.geometry import TIERS
from serve_app.schemas.image_klein import ImageKleinRequest

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
