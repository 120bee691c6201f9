"""Custom forms, whose ranges come from the catalog."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from support.payloads import DEFAULTS

from serve_app.schemas.custom import FORMS, FieldRange, FormSettings, custom_request

SETTINGS = FormSettings(
    steps=FieldRange(min=1, max=8, default=4),
    guidance=FieldRange(min=1, max=10),
    duration=FieldRange(min=1, max=3, default=2),
    side=512,
    max_side=1024,
    multiple=32,
    max_images=2,
)


def request(form: str, **body: Any) -> Any:
    return custom_request(form, "gen-any", SETTINGS).model_validate({"prompt": "x", **body})


def test_omitted_fields_have_the_defaults_of_the_form() -> None:
    plan = request("text-to-image").resolve(DEFAULTS, [])
    assert (plan.width, plan.height, plan.steps, plan.guidance) == (512, 512, 4, None)
    wide = request("text-to-image", aspect_ratio="16:9", negative_prompt="rain").resolve(DEFAULTS, [])
    assert (wide.width, wide.height, wide.negative_prompt) == (672, 384, "rain")
    assert request("edit", images=["a"]).resolve(DEFAULTS, [(300, 600)]).width == 352
    video = request("text-to-video").resolve(DEFAULTS, [])
    assert video.video is not None
    assert (video.output_format, video.video.seconds) == ("mp4", 2)


@pytest.mark.parametrize(
    ("form", "body", "field"),
    [
        ("text-to-image", {"steps": 9}, "steps"),
        ("text-to-image", {"steps": True}, "steps"),
        ("text-to-image", {"guidance": 0.5}, "guidance"),
        ("text-to-image", {"width": 500, "height": 512}, "width"),
        ("text-to-image", {"width": 1056, "height": 512}, "width"),
        ("text-to-image", {"width": 512}, "height"),
        ("text-to-image", {"images": ["a"]}, "images"),
        ("edit", {"images": ["a", "b", "c"]}, "images"),
        ("edit", {}, "images"),
        ("inpaint", {"image": "a"}, "mask"),
        ("image-to-video", {"image": "a", "duration": 4}, "duration"),
    ],
)
def test_value_out_of_range_is_refused_by_its_field(form: str, body: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as problem:
        request(form, **body)
    assert problem.value.errors()[0]["loc"][0] == field


@pytest.mark.parametrize("form", FORMS)
def test_schema_is_named_after_its_endpoint(form: str) -> None:
    assert custom_request(form, "gen-qwen/image-2.1", SETTINGS).__name__ == "GenQwenImage21Request"


@pytest.mark.parametrize("values", [{"min": 2, "max": 1}, {"min": 1, "max": 2, "default": 3}])
def test_range_out_of_order_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="min must be at most max"):
        FieldRange(**values)
