"""Resolution of image requests: sizes, guidance, edges, masks."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from support.input_images import input_image, pixels
from support.payloads import DEFAULTS

from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import TIERS
from serve_app.inputs.images import InputImage
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
def test_gen_2_has_an_exact_size_or_its_first_images(
    body: dict[str, Any], references: list[tuple[int, int]], size: tuple[int, int]
) -> None:
    plan = Gen2ProRequest.model_validate({"prompt": "x", **body}).resolve(DEFAULTS, references)
    assert _size(plan) == size
    assert plan.area == size[0] * size[1]


def test_only_max_removes_backgrounds() -> None:
    body = {"prompt": "x", "transparent_bg": True, "output_format": "webp"}
    plan = Gen2MaxRequest.model_validate(body).resolve(DEFAULTS, [])
    assert (plan.transparent, plan.output_format) == (True, "png")
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
def test_size_of_kontext_is_near_one_megapixel(
    ratio: str | None, references: list[tuple[int, int]], size: tuple[int, int]
) -> None:
    plan = KontextRequest(prompt="x", aspect_ratio=ratio).resolve(DEFAULTS, references)
    assert _size(plan) == size
    assert plan.area == size[0] * size[1] == pytest.approx(AREA, rel=0.02)


@pytest.mark.parametrize("text", ["2.334:1", "3:7.01", "0:1", "1:0", "1:", "a:b", "1:1:1", "+1:1"])
def test_invalid_ratio_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        KontextRequest(prompt="x", aspect_ratio=text)


def test_pro_passes_guidance_and_size() -> None:
    plan = ProRequest(guidance=3.5, interval=2.5, steps=7, width=1440, height=256).resolve(DEFAULTS, [(100, 100)])
    assert (plan.guidance, plan.guidance_interval, plan.steps) == (3.5, 2.5, 7)
    assert (_size(plan), plan.area) == ((1440, 256), 1440 * 256)


def test_canny_orders_its_thresholds() -> None:
    for low, high in ((50, 200), (200, 50), (0, 0)):
        body = CannyRequest(prompt="x", control_image="a", canny_low_threshold=low, canny_high_threshold=high)
        assert body.resolve(DEFAULTS, [(640, 480)]).canny == (min(low, high), max(low, high))


def test_preprocessed_image_replaces_the_control_image() -> None:
    both = CannyRequest(prompt="x", control_image="a", preprocessed_image="b")
    assert [(each.value, each.role) for each in both.image_inputs()] == [("b", "control")]
    assert both.resolve(DEFAULTS, [(640, 480)]).canny is None


def test_fill_paints_where_the_image_is_transparent() -> None:
    image = input_image((8, 6), "RGBA", (10, 20, 30, 64))
    reference, mask = FillRequest(image="a").prepare_images([RequestImage("references", image)])
    assert (reference.image, reference.role, mask.role) == (image, "references", "mask")
    assert pixels(mask.image).tolist() == [[191] * 8] * 6


@pytest.mark.parametrize("image", [input_image((8, 6)), input_image((8, 6), "RGBA", (0, 0, 0, 255))])
def test_fill_of_an_opaque_image_needs_a_mask(image: InputImage) -> None:
    with pytest.raises(ImageProblem) as refused:
        FillRequest(image="a").prepare_images([RequestImage("references", image)])
    assert (refused.value.field, refused.value.kind) == ("mask", "missing")


@pytest.mark.parametrize("size", [(6, 6), (8, 5)])
def test_mask_of_another_size_is_refused(size: tuple[int, int]) -> None:
    images = [RequestImage("references", input_image((8, 6))), RequestImage("mask", input_image(size, "L"))]
    with pytest.raises(ImageProblem, match=f"{size[0]}x{size[1]}") as refused:
        FillRequest(image="a", mask="b").prepare_images(images)
    assert refused.value.field == "mask"


def _request(**body: Any) -> ImageKleinRequest:
    return ImageKleinRequest.model_validate({"prompt": "a cat", **body})


def test_klein_leaves_the_ratio_open_unless_it_edits() -> None:
    plan = _request(seed=5, steps=4, output_format="png").resolve(DEFAULTS, [])
    assert (plan.prompt, plan.seed, plan.steps, plan.output_format) == ("a cat", 5, 4, "png")
    assert (plan.area, plan.open_ratio, plan.width, plan.height) == (TIERS["1k"], True, 1360, 768)
    edit = _request(images=["a", "b"]).resolve(DEFAULTS, [(1001, 667), (50, 50)])
    assert (edit.open_ratio, edit.width, edit.height) == (False, 1001, 667)


def test_omitted_seed_is_random_and_zero_is_kept() -> None:
    assert len({_request().resolve(DEFAULTS, []).seed for _ in range(20)}) > 1
    assert _request(seed=0).resolve(DEFAULTS, []).seed == 0
