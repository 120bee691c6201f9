from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.media.geometry import MAX_AREA, RATIOS, TIERS
from serve_app.requests.image_klein import ImageKleinRequest

LONGEST_URL = "https://hooks.test/" + "x" * (2083 - len("https://hooks.test/"))
LAYOUT = '[{"id": "cat_1", "bbox": [0, 0, 10, 10], "desc": "a cat"}]'


def _request(**body: Any) -> ImageKleinRequest:
    return ImageKleinRequest.model_validate({"prompt": "a cat", **body})


def _problems(body: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        ImageKleinRequest.model_validate(body)
    return [(error["loc"], error["type"]) for error in refused.value.errors()]


def test_defaults() -> None:
    request = _request()
    assert (request.aspect_ratio, request.output_format, request.steps) == ("auto", "jpeg", 16)
    for name in ("images", "resolution", "width", "height", "seed", "safety_tolerance", "webhook_url", "user"):
        assert getattr(request, name) is None


def test_nulls_mean_not_set() -> None:
    optional = set(ImageKleinRequest.model_fields) - {"prompt"}
    assert _request(**dict.fromkeys(optional)) == _request()


@pytest.mark.parametrize(
    "body",
    [
        {"images": ["x"]},
        {"images": ["x"] * 10},
        {"aspect_ratio": "9:21"},
        {"resolution": "768sq"},
        {"resolution": "4k", "aspect_ratio": "auto"},
        {"width": 64, "height": 64},
        {"width": 6256, "height": 2688},
        {"width": 4736, "height": 3552},
        {"width": 1000.0, "height": 64},
        {"seed": 0},
        {"seed": 4294967295},
        {"safety_tolerance": 0},
        {"safety_tolerance": 7},
        {"output_format": "png"},
        {"output_format": "webp"},
        {"steps": 1},
        {"steps": 16},
        {"webhook_url": "https://example.com/", "webhook_secret": "x", "user": "u"},
        {"prompt": f"A room {LAYOUT}"},
        {"prompt": "a clock showing [three]"},
        {"prompt": "\N{CAT FACE} " * 1000},
        {"prompt": "x" * 32_768},
        *({"aspect_ratio": name} for name in RATIOS),
        *({"resolution": name} for name in TIERS),
        {"width": 6256, "height": 64},
        {"width": 64, "height": 6256},
        {"width": 1001, "height": 67},
        {"webhook_url": LONGEST_URL},
        {"webhook_url": "https://example.com/", "webhook_secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
        {"user": "u" * 256},
    ],
)
def test_accepted(body: dict[str, Any]) -> None:
    request = _request(**body)
    assert {name: getattr(request, name) for name in body if name != "webhook_secret"} == {
        name: value for name, value in body.items() if name != "webhook_secret"
    }


@pytest.mark.parametrize(
    ("body", "field", "kind"),
    [
        ({"prompt": None}, "prompt", "string_type"),
        ({"prompt": ""}, "prompt", "string_too_short"),
        ({"prompt": "x" * 32_769}, "prompt", "string_too_long"),
        ({"prompt": 'x [{"id": 1}]'}, "prompt", "layout"),
        ({"images": []}, "images", "too_short"),
        ({"images": ["x"] * 11}, "images", "too_long"),
        ({"images": "x"}, "images", "list_type"),
        ({"aspect_ratio": "16:10"}, "aspect_ratio", "literal_error"),
        ({"resolution": "8k"}, "resolution", "literal_error"),
        ({"width": 63, "height": 64}, "width", "greater_than_equal"),
        ({"width": 64, "height": 63}, "height", "greater_than_equal"),
        ({"width": 6257, "height": 64}, "width", "less_than_equal"),
        ({"width": 64, "height": 6257}, "height", "less_than_equal"),
        ({"width": 64}, "height", "missing"),
        ({"height": 64}, "width", "missing"),
        ({"width": 64, "height": None}, "height", "missing"),
        ({"width": 6256, "height": 2689}, "height", "area_too_large"),
        ({"width": 64.5, "height": 64}, "width", "int_from_float"),
        ({"seed": -1}, "seed", "greater_than_equal"),
        ({"seed": 4294967296}, "seed", "less_than_equal"),
        ({"seed": True}, "seed", "int_type"),
        ({"safety_tolerance": -1}, "safety_tolerance", "greater_than_equal"),
        ({"safety_tolerance": 8}, "safety_tolerance", "less_than_equal"),
        ({"output_format": "gif"}, "output_format", "literal_error"),
        ({"steps": 0}, "steps", "greater_than_equal"),
        ({"steps": 17}, "steps", "less_than_equal"),
        ({"steps": "8"}, "steps", "int_type"),
        ({"steps": False}, "steps", "int_type"),
        ({"user": ""}, "user", "string_too_short"),
        ({"webhook_url": "mailto:a@example.com"}, "webhook_url", "url_refused"),
        ({"webhook_secret": "whsec_?"}, "webhook_secret", "webhook_secret"),
        ({"prompt": " \n\t\u3000"}, "prompt", "prompt_blank"),
        ({"prompt": 3}, "prompt", "string_type"),
        ({"prompt": ["x"]}, "prompt", "string_type"),
        ({"images": {}}, "images", "list_type"),
        ({"aspect_ratio": "1:3"}, "aspect_ratio", "literal_error"),
        ({"aspect_ratio": "16x9"}, "aspect_ratio", "literal_error"),
        ({"aspect_ratio": 1}, "aspect_ratio", "literal_error"),
        ({"resolution": 1}, "resolution", "literal_error"),
        ({"width": 0, "height": 64}, "width", "greater_than_equal"),
        ({"width": -64, "height": 64}, "width", "greater_than_equal"),
        ({"width": "64", "height": 64}, "width", "int_type"),
        ({"width": True, "height": 64}, "width", "int_type"),
        ({"width": 4736, "height": 3553}, "height", "area_too_large"),
        ({"seed": 10**30}, "seed", "less_than_equal"),
        ({"seed": 0.5}, "seed", "int_from_float"),
        ({"seed": "7"}, "seed", "int_type"),
        ({"seed": []}, "seed", "int_type"),
        ({"safety_tolerance": 1.5}, "safety_tolerance", "int_from_float"),
        ({"output_format": ["jpeg"]}, "output_format", "literal_error"),
        ({"steps": 4.5}, "steps", "int_from_float"),
        ({"webhook_url": ""}, "webhook_url", "string_too_short"),
        ({"webhook_url": LONGEST_URL + "x"}, "webhook_url", "string_too_long"),
        ({"webhook_url": "hooks.test/done"}, "webhook_url", "url_refused"),
        ({"webhook_url": "ftp://hooks.test/done"}, "webhook_url", "url_refused"),
        ({"webhook_url": "https://me:pass@hooks.test/"}, "webhook_url", "url_refused"),
        ({"webhook_secret": ""}, "webhook_secret", "too_short"),
        ({"webhook_secret": "x" * 513}, "webhook_secret", "too_long"),
        ({"webhook_secret": "whsec_"}, "webhook_secret", "webhook_secret"),
        ({"webhook_secret": "whsec_!"}, "webhook_secret", "webhook_secret"),
        ({"user": "u" * 257}, "user", "string_too_long"),
        ({"negative_prompt": "x"}, "negative_prompt", "extra_forbidden"),
        ({"input_image": "x"}, "input_image", "extra_forbidden"),
        ({"guidance": None}, "guidance", "extra_forbidden"),
        ({"guidance": 3}, "guidance", "extra_forbidden"),
        ({"input_image": None}, "input_image", "extra_forbidden"),
    ],
)
def test_refused_at_the_field(body: dict[str, Any], field: str, kind: str) -> None:
    assert _problems({"prompt": "a cat", **body}) == [((field,), kind)]


def test_the_prompt_is_required() -> None:
    assert _problems({}) == [(("prompt",), "missing")]


def test_a_bad_picture_is_named_by_its_place() -> None:
    assert _problems({"prompt": "x", "images": ["x", ""]}) == [(("images", 1), "string_too_short")]


def test_all_problems_are_reported_at_once() -> None:
    assert [loc for loc, _ in _problems({"prompt": "", "seed": -1, "steps": 99})] == [
        ("prompt",),
        ("seed",),
        ("steps",),
    ]


def test_the_largest_area() -> None:
    assert MAX_AREA == 4736 * 3552
    assert _problems({"prompt": "x", "width": 4737, "height": 3552}) == [(("height",), "area_too_large")]


def test_plan_with_an_open_ratio() -> None:
    plan = _request(seed=5, steps=4, output_format="png").plan([])
    assert (plan.prompt, plan.seed, plan.steps, plan.output_format) == ("a cat", 5, 4, "png")
    assert (plan.area, plan.width, plan.height) == (TIERS["1k"], None, None)


def test_plan_with_an_exact_size() -> None:
    plan = _request(width=640, height=480, resolution="4k").plan([(100, 100)])
    assert (plan.width, plan.height, plan.area) == (640, 480, 640 * 480)


def test_plan_of_an_edit_follows_the_first_reference() -> None:
    plan = _request(images=["a", "b"]).plan([(1001, 667), (50, 50)])
    assert (plan.width, plan.height) == (1001, 667)


def test_a_missing_seed_is_drawn_and_zero_is_kept() -> None:
    assert len({_request().plan([]).seed for _ in range(20)}) > 1
    assert _request(seed=0).plan([]).seed == 0


def test_every_field_is_described_with_an_example() -> None:
    for name, field in ImageKleinRequest.model_fields.items():
        assert field.description, name
        assert field.examples, name


def test_the_schema_is_strict_and_nullable_where_it_should_be() -> None:
    schema = ImageKleinRequest.model_json_schema()
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["prompt"]
    for name, field in schema["properties"].items():
        nullable = {"type": "null"} in field.get("anyOf", [])
        assert nullable == (name != "prompt"), name
