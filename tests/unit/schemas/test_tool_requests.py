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


def _make_mask(box: tuple[int, int, int, int], size: tuple[int, int] = (96, 64), mode: str = "L") -> InputImage:
    image = Image.new("L", size)
    image.paste(255, box)
    return as_input(image.convert(mode))


def _prepare(mask: InputImage, image: InputImage | None = None, **body: Any) -> list[RequestImage]:
    request = EraseRequest.model_validate({"image": "a", "mask": "b", **body})
    return request.prepare_images([RequestImage("references", image or input_image()), RequestImage("mask", mask)])


def _problem(mask: InputImage, image: InputImage | None = None, **body: Any) -> ImageProblem:
    with pytest.raises(ImageProblem) as refused:
        _prepare(mask, image, **body)
    assert refused.value.field == "mask"
    return refused.value


def test_the_image_is_kept_and_the_mask_is_grown() -> None:
    image = input_image(mode="RGBA", colour=(1, 2, 3, 40))
    reference, mask = _prepare(_make_mask((40, 30, 50, 36)), image)
    assert reference == ("references", image)
    assert mask.role == "mask"
    rows, columns = np.nonzero(pixels(mask.image))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 45, 30, 59)
    assert pixels(mask.image)[20, 30] == 0, "corners are round"


@pytest.mark.parametrize("size", [(95, 64), (96, 65)])
def test_sizes_are_compared(size: tuple[int, int]) -> None:
    assert _problem(_make_mask((0, 0, 9, 9), size)).kind == "mask_size"


def test_an_empty_mask() -> None:
    assert _problem(input_image(mode="L", colour=127)).kind == "mask_empty"


def test_a_mask_that_covers_everything() -> None:
    for dilation in (0, 10):
        problem = _problem(input_image(mode="L", colour=255), dilate_pixels=dilation)
        assert problem.kind == "mask_full"
        assert "dilate_pixels" not in str(problem)


def test_a_mask_that_covers_everything_once_grown() -> None:
    nearly = _make_mask((0, 0, 91, 64))
    problem = _problem(nearly, dilate_pixels=5)
    assert problem.kind == "mask_full"
    assert "dilate_pixels = 5" in str(problem)
    _, mask = _prepare(nearly, dilate_pixels=4)
    assert (pixels(mask.image)[:, 95] == 0).all()
    assert (pixels(mask.image)[:, :95] == 255).all()


@pytest.mark.parametrize(("size", "expected"), [((96, 64), (96, 64)), ((20, 30), (64, 96)), ((5, 5), (64, 64))])
def test_the_result_has_the_size_of_the_image(size: tuple[int, int], expected: tuple[int, int]) -> None:
    images = _prepare(_make_mask((0, 0, 2, 2), size), input_image(size), dilate_pixels=0)
    plan = EraseRequest(image="a", mask="b").resolve(DEFAULTS, sizes(images))
    assert (plan.width, plan.height, plan.area) == (*expected, expected[0] * expected[1])


def test_deblurring_takes_four_megapixels() -> None:
    request = DeblurRequest(image="a")
    images = [RequestImage("references", input_image((2048, 2048), "L"))]
    assert request.prepare_images(images) == images
    assert request.resolve(DEFAULTS, sizes(images)).area == 2048 * 2048
    with pytest.raises(ImageProblem) as refused:
        request.prepare_images([RequestImage("references", input_image((2049, 2048), "L"))])
    assert (refused.value.field, refused.value.kind) == ("image", "image_too_large")


BODY = {"person": "a", "garment": "b"}
SMALL = input_image((64, 64), "L")


def _prepared_try_on(
    form: type[TryOnRequest], person: InputImage = SMALL, garment: InputImage = SMALL
) -> list[RequestImage]:
    request = form.model_validate(BODY)
    return request.prepare_images([RequestImage("references", person), RequestImage("references", garment)])


@pytest.mark.parametrize("form", [TryOnV1Request, TryOnV2Request])
def test_the_person_comes_first(form: type[TryOnRequest]) -> None:
    inputs = form.model_validate({"garment": "b", "person": "a"}).image_inputs()
    assert inputs == [(("person",), "a", "references"), (("garment",), "b", "references")]


@pytest.mark.parametrize("size", [(2049, 1024), (1449, 1448)])
def test_v1_scales_all_above_to_one(size: tuple[int, int]) -> None:
    large = input_image(size, "L")
    for result, others in (
        (_prepared_try_on(TryOnV1Request, large)[0], _prepared_try_on(TryOnV1Request, large)[1]),
        (_prepared_try_on(TryOnV1Request, SMALL, large)[1], _prepared_try_on(TryOnV1Request, SMALL, large)[0]),
    ):
        assert others.image == SMALL
        assert result.role == "references"
        assert result.image.width * result.image.height == pytest.approx(MEGAPIXEL, rel=0.005)
        assert result.image.width / result.image.height == pytest.approx(size[0] / size[1], rel=0.002)


@pytest.mark.parametrize("size", [(2048, 2048), (4096, 1024), (3000, 1398)])
def test_v2_takes_four_megapixels_as_they_are(size: tuple[int, int]) -> None:
    large = input_image(size, "L")
    results = _prepared_try_on(TryOnV2Request, large, large)
    assert [each.image for each in results] == [large, large]
    plan = TryOnV2Request.model_validate(BODY).resolve(DEFAULTS, sizes(results))
    assert (plan.width, plan.height) == size


@pytest.mark.parametrize("size", [(2049, 2048), (3000, 1399)])
@pytest.mark.parametrize("field", ["person", "garment"])
def test_v2_refuses_larger_ones(size: tuple[int, int], field: str) -> None:
    with pytest.raises(ImageProblem) as refused:
        _prepared_try_on(TryOnV2Request, **{field: input_image(size, "L")})
    assert (refused.value.field, refused.value.kind) == (field, "image_too_large")
