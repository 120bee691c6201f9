"""What each request before generation 3 makes of itself: sizes, guidance, edges, masks."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import pytest
from PIL import Image
from pydantic import ValidationError

from serve_app.inputs.geometry import TIERS
from serve_app.inputs.images import InputPicture, read_image
from serve_app.schemas.fields import Picture, PictureProblem
from serve_app.schemas.general import AREA, Gen2MaxRequest, Gen2ProRequest, KontextRequest, ProRequest, ratio_of
from serve_app.schemas.image_klein import ImageKleinRequest
from serve_app.schemas.inpaint import CannyRequest, FillRequest
from serve_app.schemas.plan import ModelDefaults, Plan


def _size(plan: Plan) -> tuple[int | None, int | None]:
    return plan.width, plan.height


def _input(mode: str, size: tuple[int, int] = (8, 6), colour: Any = 0) -> InputPicture:
    buffer = io.BytesIO()
    Image.new(mode, size, colour).save(buffer, "PNG")
    return read_image(buffer.getvalue())


@pytest.mark.parametrize(
    ("body", "references", "size"),
    [
        ({}, [], (1024, 1024)),
        ({"width": 0, "height": 0}, [], (1024, 1024)),
        ({"width": 64, "height": 80}, [(300, 200)], (64, 80)),
        ({}, [(300, 200), (900, 900)], (300, 200)),
    ],
)
def test_sizes_of_gen_2(body: dict[str, Any], references: list[tuple[int, int]], size: tuple[int, int]) -> None:
    plan = Gen2ProRequest.model_validate({"prompt": "x", **body}).plan(references)
    assert _size(plan) == size
    assert plan.area == size[0] * size[1]


def test_only_max_removes_backgrounds() -> None:
    body = {"prompt": "x", "transparent_bg": True, "output_format": "webp"}
    assert Gen2MaxRequest.model_validate(body).plan([]).output_format == "png"
    assert Gen2MaxRequest.model_validate(body).plan([]).transparent
    assert not Gen2ProRequest.model_validate(body).plan([]).transparent


@pytest.mark.parametrize(
    ("ratio", "references", "size"),
    [
        (None, [], (1024, 1024)),
        ("1:1", [(300, 200)], (1024, 1024)),
        ("16:9", [], (1360, 768)),
        ("1.6:0.9", [], (1360, 768)),
        (None, [(3000, 2000), (64, 64)], (1254, 836)),
    ],
)
def test_sizes_of_kontext(ratio: str | None, references: list[tuple[int, int]], size: tuple[int, int]) -> None:
    plan = KontextRequest(prompt="x", aspect_ratio=ratio).plan(references)
    assert _size(plan) == size
    assert plan.area == size[0] * size[1] == pytest.approx(AREA, rel=0.02)


@pytest.mark.parametrize("text", ["2.334:1", "3:7.01", "0:1", "1:0", "1:", "a:b", "1:1:1", "+1:1"])
def test_ratios_that_are_none(text: str) -> None:
    with pytest.raises(ValidationError):
        KontextRequest(prompt="x", aspect_ratio=text)


def test_ratios_are_exact() -> None:
    assert ratio_of("1.85:1") == Fraction(37, 20)


def test_pro_passes_its_guidance_on() -> None:
    plan = ProRequest(guidance=3.5, interval=2.5, steps=7, width=1440, height=256).plan([(100, 100)])
    assert (plan.guidance, plan.guidance_interval, plan.steps) == (3.5, 2.5, 7)
    assert (_size(plan), plan.area) == ((1440, 256), 1440 * 256)


@pytest.mark.parametrize(("low", "high", "expected"), [(50, 200, (50, 200)), (200, 50, (50, 200)), (0, 0, (0, 0))])
def test_canny_orders_its_thresholds(low: int, high: int, expected: tuple[int, int]) -> None:
    body = CannyRequest(prompt="x", control_image="a", canny_low_threshold=low, canny_high_threshold=high)
    assert body.plan([(640, 480)]).canny == expected


def test_canny_uses_one_picture() -> None:
    both = CannyRequest(prompt="x", control_image="a", preprocessed_image="b")
    assert [(each.value, each.role) for each in both.image_inputs()] == [("b", "control")]
    assert both.plan([(640, 480)]).canny is None


def test_fill_inverts_alpha_and_keeps_the_picture() -> None:
    image = _input("RGBA", colour=(10, 20, 30, 64))
    kept, mask = FillRequest(image="a").prepared([Picture("references", image)])
    assert (kept.image, kept.role, mask.role) == (image, "references", "mask")
    with Image.open(io.BytesIO(mask.image.data)) as made:
        assert (made.mode, made.size, made.getpixel((0, 0))) == ("L", (8, 6), 191)


@pytest.mark.parametrize("image", [_input("RGB"), _input("L"), _input("RGBA", colour=(0, 0, 0, 255))])
def test_fill_needs_to_know_what_to_repaint(image: InputPicture) -> None:
    with pytest.raises(PictureProblem) as refused:
        FillRequest(image="a").prepared([Picture("references", image)])
    assert (refused.value.field, refused.value.kind) == ("mask", "missing")


def test_fill_compares_sizes() -> None:
    pictures = [Picture("references", _input("RGB")), Picture("mask", _input("L", (6, 8)))]
    with pytest.raises(PictureProblem, match="6x8") as refused:
        FillRequest(image="a", mask="b").prepared(pictures)
    assert refused.value.field == "mask"


def test_the_model_completes_what_a_request_leaves_open() -> None:
    open_plan = Gen2ProRequest(prompt="x").plan([])
    done = open_plan.completed(ModelDefaults(steps=4, guidance=2.0))
    assert (open_plan.steps, done.steps, done.guidance) == (None, 4, 2.0)
    assert done.work == 4
    own = ProRequest(steps=7).plan([]).completed(ModelDefaults(steps=4, guidance=2.0))
    assert (own.steps, own.guidance) == (7, 2.5)


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
