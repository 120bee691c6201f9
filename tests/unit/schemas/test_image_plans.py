"""What each request before generation 3 makes of itself: sizes, guidance, edges, masks."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from support.input_images import input_image, pixels
from support.payloads import DEFAULTS

from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import TIERS
from serve_app.inputs.images import InputImage
from serve_app.schemas.defaults import ModelDefaults
from serve_app.schemas.fields import ImageProblem, RequestImage
from serve_app.schemas.general import AREA, Gen2MaxRequest, Gen2ProRequest, KontextRequest, ProRequest
from serve_app.schemas.image_klein import ImageKleinRequest
from serve_app.schemas.inpaint import CannyRequest, FillRequest


def _size(plan: ResolvedRequest) -> tuple[int, int]:
    return plan.width, plan.height


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
    plan = Gen2ProRequest.model_validate({"prompt": "x", **body}).resolve(DEFAULTS, references)
    assert _size(plan) == size
    assert plan.area == size[0] * size[1]


def test_only_max_removes_backgrounds() -> None:
    body = {"prompt": "x", "transparent_bg": True, "output_format": "webp"}
    assert Gen2MaxRequest.model_validate(body).resolve(DEFAULTS, []).output_format == "png"
    assert Gen2MaxRequest.model_validate(body).resolve(DEFAULTS, []).transparent
    assert not Gen2ProRequest.model_validate(body).resolve(DEFAULTS, []).transparent


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
    plan = KontextRequest(prompt="x", aspect_ratio=ratio).resolve(DEFAULTS, references)
    assert _size(plan) == size
    assert plan.area == size[0] * size[1] == pytest.approx(AREA, rel=0.02)


@pytest.mark.parametrize("text", ["2.334:1", "3:7.01", "0:1", "1:0", "1:", "a:b", "1:1:1", "+1:1"])
def test_ratios_that_are_none(text: str) -> None:
    with pytest.raises(ValidationError):
        KontextRequest(prompt="x", aspect_ratio=text)


def test_pro_passes_its_guidance_on() -> None:
    plan = ProRequest(guidance=3.5, interval=2.5, steps=7, width=1440, height=256).resolve(DEFAULTS, [(100, 100)])
    assert (plan.guidance, plan.guidance_interval, plan.steps) == (3.5, 2.5, 7)
    assert (_size(plan), plan.area) == ((1440, 256), 1440 * 256)


@pytest.mark.parametrize(("low", "high", "expected"), [(50, 200, (50, 200)), (200, 50, (50, 200)), (0, 0, (0, 0))])
def test_canny_orders_its_thresholds(low: int, high: int, expected: tuple[int, int]) -> None:
    body = CannyRequest(prompt="x", control_image="a", canny_low_threshold=low, canny_high_threshold=high)
    assert body.resolve(DEFAULTS, [(640, 480)]).canny == expected


def test_canny_uses_one_image() -> None:
    both = CannyRequest(prompt="x", control_image="a", preprocessed_image="b")
    assert [(each.value, each.role) for each in both.image_inputs()] == [("b", "control")]
    assert both.resolve(DEFAULTS, [(640, 480)]).canny is None


def test_fill_inverts_alpha_and_keeps_the_image() -> None:
    image = input_image((8, 6), "RGBA", (10, 20, 30, 64))
    reference, mask = FillRequest(image="a").prepare_images([RequestImage("references", image)])
    assert (reference.image, reference.role, mask.role) == (image, "references", "mask")
    assert pixels(mask.image).shape == (6, 8)
    assert (pixels(mask.image) == 191).all()


@pytest.mark.parametrize(
    "image", [input_image((8, 6)), input_image((8, 6), "L"), input_image((8, 6), "RGBA", (0, 0, 0, 255))]
)
def test_fill_needs_to_know_what_to_repaint(image: InputImage) -> None:
    with pytest.raises(ImageProblem) as refused:
        FillRequest(image="a").prepare_images([RequestImage("references", image)])
    assert (refused.value.field, refused.value.kind) == ("mask", "missing")


def test_fill_compares_sizes() -> None:
    images = [RequestImage("references", input_image((8, 6))), RequestImage("mask", input_image((6, 8), "L"))]
    with pytest.raises(ImageProblem, match="6x8") as refused:
        FillRequest(image="a", mask="b").prepare_images(images)
    assert refused.value.field == "mask"


def test_work_is_megapixel_steps() -> None:
    assert Gen2ProRequest(prompt="x").resolve(ModelDefaults(steps=4), []).work == 4


def _request(**body: Any) -> ImageKleinRequest:
    return ImageKleinRequest.model_validate({"prompt": "a cat", **body})


def test_plan_with_an_open_ratio() -> None:
    plan = _request(seed=5, steps=4, output_format="png").resolve(DEFAULTS, [])
    assert (plan.prompt, plan.seed, plan.steps, plan.output_format) == ("a cat", 5, 4, "png")
    assert (plan.area, plan.open_ratio, plan.width, plan.height) == (TIERS["1k"], True, 1360, 768)


def test_plan_of_an_edit_follows_the_first_reference() -> None:
    plan = _request(images=["a", "b"]).resolve(DEFAULTS, [(1001, 667), (50, 50)])
    assert (plan.width, plan.height) == (1001, 667)


def test_a_missing_seed_is_drawn_and_zero_is_kept() -> None:
    assert len({_request().resolve(DEFAULTS, []).seed for _ in range(20)}) > 1
    assert _request(seed=0).resolve(DEFAULTS, []).seed == 0
