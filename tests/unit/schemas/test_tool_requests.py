from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.input_images import as_input, input_image, pixels, sizes
from support.payloads import DEFAULTS

from serve_app.inputs.geometry import MEGAPIXEL
from serve_app.inputs.images import InputImage
from serve_app.schemas.fields import ImageProblem, RequestImage
from serve_app.schemas.inpaint import EraseRequest
from serve_app.schemas.tools import DeblurRequest, TryOnRequest, TryOnV1Request, TryOnV2Request


def _make_mask(box: tuple[int, int, int, int], size: tuple[int, int] = (96, 64)) -> InputImage:
    image = Image.new("L", size)
    image.paste(255, box)
    return as_input(image)


NEARLY_FULL = _make_mask((0, 0, 91, 64))


def _prepare(mask: InputImage, image: InputImage | None = None, **body: Any) -> list[RequestImage]:
    request = EraseRequest.model_validate({"image": "a", "mask": "b", **body})
    return request.prepare_images([RequestImage("references", image or input_image()), RequestImage("mask", mask)])


def test_erase_keeps_the_image_and_grows_the_mask() -> None:
    image = input_image(mode="RGBA", colour=(1, 2, 3, 40))
    reference, mask = _prepare(_make_mask((40, 30, 50, 36)), image)
    assert (reference.role, reference.image) == ("references", image)
    assert mask.role == "mask"
    rows, columns = np.nonzero(pixels(mask.image))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 45, 30, 59)
    assert pixels(mask.image)[20, 30] == 0, "corners are round"


@pytest.mark.parametrize(
    ("mask", "dilation", "kind", "advice"),
    [
        (input_image(mode="L", colour=127), 10, "mask_empty", False),
        (input_image(mode="L", colour=255), 0, "mask_full", False),
        (input_image(mode="L", colour=255), 10, "mask_full", False),
        (NEARLY_FULL, 5, "mask_full", True),
    ],
    ids=["empty", "full", "full and grown", "full once grown"],
)
def test_empty_or_full_mask_is_refused(mask: InputImage, dilation: int, kind: str, advice: bool) -> None:
    with pytest.raises(ImageProblem) as refused:
        _prepare(mask, dilate_pixels=dilation)
    assert (refused.value.field, refused.value.kind) == ("mask", kind)
    assert ("dilate_pixels = 5" in str(refused.value)) == ("dilate_pixels" in str(refused.value)) == advice


def test_mask_that_leaves_a_column_is_accepted() -> None:
    _, mask = _prepare(NEARLY_FULL, dilate_pixels=4)
    assert (pixels(mask.image)[:, 95] == 0).all()
    assert (pixels(mask.image)[:, :95] == 255).all()


@pytest.mark.parametrize(("size", "expected"), [((96, 64), (96, 64)), ((20, 30), (64, 96)), ((5, 5), (64, 64))])
def test_result_of_erase_has_the_size_of_the_image(size: tuple[int, int], expected: tuple[int, int]) -> None:
    images = _prepare(_make_mask((0, 0, 2, 2), size), input_image(size), dilate_pixels=0)
    plan = EraseRequest(image="a", mask="b").resolve(DEFAULTS, sizes(images))
    assert (plan.width, plan.height, plan.area) == (*expected, expected[0] * expected[1])


def test_deblurring_accepts_four_megapixels() -> None:
    request = DeblurRequest(image="a")
    images = [RequestImage("references", input_image((2048, 2048), "L"))]
    assert request.prepare_images(images) == images
    assert request.resolve(DEFAULTS, sizes(images)).area == 2048 * 2048
    with pytest.raises(ImageProblem) as refused:
        request.prepare_images([RequestImage("references", input_image((2049, 2048), "L"))])
    assert (refused.value.field, refused.value.kind) == ("image", "image_too_large")


BODY = {"person": "a", "garment": "b"}
SMALL = input_image((64, 64), "L")


def _prepare_try_on(
    form: type[TryOnRequest], person: InputImage = SMALL, garment: InputImage = SMALL
) -> list[RequestImage]:
    request = form.model_validate(BODY)
    return request.prepare_images([RequestImage("references", person), RequestImage("references", garment)])


@pytest.mark.parametrize("form", [TryOnV1Request, TryOnV2Request])
def test_person_comes_before_garment(form: type[TryOnRequest]) -> None:
    inputs = form.model_validate({"garment": "b", "person": "a"}).image_inputs()
    assert inputs == [(("person",), "a", "references"), (("garment",), "b", "references")]


@pytest.mark.parametrize("size", [(2049, 1024), (1449, 1448)])
def test_v1_scales_images_over_2_megapixels_to_one(size: tuple[int, int]) -> None:
    large = input_image(size, "L")
    person, garment = _prepare_try_on(TryOnV1Request, large)
    assert (person.role, garment.image) == ("references", SMALL)
    assert person.image.width * person.image.height == pytest.approx(MEGAPIXEL, rel=0.005)
    assert person.image.width / person.image.height == pytest.approx(size[0] / size[1], rel=0.002)
    assert _prepare_try_on(TryOnV1Request, SMALL, large) == [garment, person]


@pytest.mark.parametrize("size", [(2048, 2048), (3000, 1398)])
def test_v2_keeps_images_of_four_megapixels(size: tuple[int, int]) -> None:
    large = input_image(size, "L")
    results = _prepare_try_on(TryOnV2Request, large, large)
    assert [each.image for each in results] == [large, large]
    plan = TryOnV2Request.model_validate(BODY).resolve(DEFAULTS, sizes(results))
    assert (plan.width, plan.height) == size


@pytest.mark.parametrize("size", [(2049, 2048), (3000, 1399)])
@pytest.mark.parametrize("field", ["person", "garment"])
def test_v2_refuses_larger_images(size: tuple[int, int], field: str) -> None:
    with pytest.raises(ImageProblem) as refused:
        _prepare_try_on(TryOnV2Request, **{field: input_image(size, "L")})
    assert (refused.value.field, refused.value.kind) == (field, "image_too_large")
