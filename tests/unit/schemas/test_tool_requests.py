from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from support.input_images import as_input, picture, pixels, sizes

from serve_app.inputs.geometry import MEGAPIXEL
from serve_app.inputs.images import InputPicture
from serve_app.schemas.fields import MAX_PROMPT_CHARS, Picture, PictureProblem
from serve_app.schemas.inpaint import EraseRequest
from serve_app.schemas.tools import DeblurRequest, TryOnRequest, TryOnV1Request, TryOnV2Request


def _marked(box: tuple[int, int, int, int], size: tuple[int, int] = (96, 64), mode: str = "L") -> InputPicture:
    image = Image.new("L", size)
    image.paste(255, box)
    return as_input(image.convert(mode))


def _prepared(mask: InputPicture, image: InputPicture | None = None, **body: Any) -> list[Picture]:
    request = EraseRequest.model_validate({"image": "a", "mask": "b", **body})
    return request.prepared([Picture("references", image or picture()), Picture("mask", mask)])


def _problem(mask: InputPicture, image: InputPicture | None = None, **body: Any) -> PictureProblem:
    with pytest.raises(PictureProblem) as refused:
        _prepared(mask, image, **body)
    assert refused.value.field == "mask"
    return refused.value


@pytest.mark.parametrize("pixels_around", [0, 25, 10.0])
def test_how_far_around(pixels_around: float) -> None:
    assert EraseRequest.model_validate({"image": "a", "mask": "b", "dilate_pixels": pixels_around})


@pytest.mark.parametrize("pixels_around", [-1, 26, 1.5, "10", True])
def test_how_far_around_is_limited(pixels_around: Any) -> None:
    with pytest.raises(ValidationError):
        EraseRequest.model_validate({"image": "a", "mask": "b", "dilate_pixels": pixels_around})


def test_the_picture_is_kept_and_the_mask_is_grown() -> None:
    image = picture(mode="RGBA", colour=(1, 2, 3, 40))
    kept, mask = _prepared(_marked((40, 30, 50, 36)), image)
    assert kept == ("references", image)
    assert mask.role == "mask"
    rows, columns = np.nonzero(pixels(mask.image))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 45, 30, 59)
    assert pixels(mask.image)[20, 30] == 0, "corners are round"


def test_without_growth_the_mask_is_as_sent() -> None:
    _, mask = _prepared(_marked((40, 30, 50, 36)), dilate_pixels=0)
    expected = np.zeros((64, 96))
    expected[30:36, 40:50] = 255
    assert (pixels(mask.image) == expected).all()


@pytest.mark.parametrize("size", [(95, 64), (96, 65)])
def test_sizes_are_compared(size: tuple[int, int]) -> None:
    assert _problem(_marked((0, 0, 9, 9), size)).kind == "mask_size"


def test_an_empty_mask() -> None:
    assert _problem(picture(mode="L", colour=127)).kind == "mask_empty"


def test_a_mask_that_covers_everything() -> None:
    for dilation in (0, 10):
        problem = _problem(picture(mode="L", colour=255), dilate_pixels=dilation)
        assert problem.kind == "mask_full"
        assert "dilate_pixels" not in str(problem)


def test_a_mask_that_covers_everything_once_grown() -> None:
    nearly = _marked((0, 0, 91, 64))
    problem = _problem(nearly, dilate_pixels=5)
    assert problem.kind == "mask_full"
    assert "dilate_pixels = 5" in str(problem)
    _, mask = _prepared(nearly, dilate_pixels=4)
    assert (pixels(mask.image)[:, 95] == 0).all()
    assert (pixels(mask.image)[:, :95] == 255).all()


@pytest.mark.parametrize(("size", "expected"), [((96, 64), (96, 64)), ((20, 30), (64, 96)), ((5, 5), (64, 64))])
def test_the_result_has_the_size_of_the_picture(size: tuple[int, int], expected: tuple[int, int]) -> None:
    made = _prepared(_marked((0, 0, 2, 2), size), picture(size), dilate_pixels=0)
    plan = EraseRequest(image="a", mask="b").plan(sizes(made))
    assert (plan.width, plan.height, plan.area) == (*expected, expected[0] * expected[1])


REQUEST = DeblurRequest(image="a")


@pytest.mark.parametrize(
    ("size", "expected"),
    [((2048, 2048), (2048, 2048)), ((30, 20), (96, 64))],
)
def test_the_result_has_the_size_of_the_picture_deblur(size: tuple[int, int], expected: tuple[int, int]) -> None:
    sent = [Picture("references", picture(size, "L"))]
    made = REQUEST.prepared(sent)
    assert made == sent
    plan = REQUEST.plan(sizes(made))
    assert (plan.width, plan.height, plan.area) == (*expected, expected[0] * expected[1])


def test_more_than_four_megapixels() -> None:
    with pytest.raises(PictureProblem) as refused:
        REQUEST.prepared([Picture("references", picture((2049, 2048), "L"))])
    assert (refused.value.field, refused.value.kind) == ("image", "picture_too_large")


BODY = {"person": "a", "garment": "b"}
SMALL = picture((64, 64), "L")


def _prepared_try_on(
    form: type[TryOnRequest], person: InputPicture = SMALL, garment: InputPicture = SMALL
) -> list[Picture]:
    request = form.model_validate(BODY)
    return request.prepared([Picture("references", person), Picture("references", garment)])


@pytest.mark.parametrize("form", [TryOnV1Request, TryOnV2Request])
def test_the_person_comes_first(form: type[TryOnRequest]) -> None:
    sent = form.model_validate({"garment": "b", "person": "a"}).image_inputs()
    assert sent == [(("person",), "a", "references"), (("garment",), "b", "references")]


@pytest.mark.parametrize("form", [TryOnV1Request, TryOnV2Request])
@pytest.mark.parametrize(("prompt", "expected"), [(None, ""), ("", ""), ("buttoned up", "buttoned up")])
def test_a_prompt_may_be_sent(form: type[TryOnRequest], prompt: str | None, expected: str) -> None:
    assert form.model_validate({**BODY, "prompt": prompt}).plan([(64, 64), (64, 64)]).prompt == expected


@pytest.mark.parametrize("prompt", [1, True, ["x"], "x" * (MAX_PROMPT_CHARS + 1)])
def test_prompts_are_text_of_limited_length(prompt: Any) -> None:
    with pytest.raises(ValidationError):
        TryOnV1Request.model_validate({**BODY, "prompt": prompt})


@pytest.mark.parametrize("size", [(2049, 1024), (1449, 1448)])
def test_v1_scales_all_above_to_one(size: tuple[int, int]) -> None:
    large = picture(size, "L")
    for made, others in (
        (_prepared_try_on(TryOnV1Request, large)[0], _prepared_try_on(TryOnV1Request, large)[1]),
        (_prepared_try_on(TryOnV1Request, SMALL, large)[1], _prepared_try_on(TryOnV1Request, SMALL, large)[0]),
    ):
        assert others.image == SMALL
        assert made.role == "references"
        assert made.image.width * made.image.height == pytest.approx(MEGAPIXEL, rel=0.005)
        assert made.image.width / made.image.height == pytest.approx(size[0] / size[1], rel=0.002)


def test_v1_answers_at_the_size_it_works_at() -> None:
    made = _prepared_try_on(TryOnV1Request, picture((3000, 2000), "L"))
    plan = TryOnV1Request.model_validate(BODY).plan(sizes(made))
    assert (plan.width, plan.height) == (1254, 836)


@pytest.mark.parametrize("size", [(2048, 2048), (4096, 1024), (3000, 1398)])
def test_v2_takes_four_megapixels_as_they_are(size: tuple[int, int]) -> None:
    large = picture(size, "L")
    made = _prepared_try_on(TryOnV2Request, large, large)
    assert [each.image for each in made] == [large, large]
    plan = TryOnV2Request.model_validate(BODY).plan(sizes(made))
    assert (plan.width, plan.height) == size


@pytest.mark.parametrize("size", [(2049, 2048), (3000, 1399)])
@pytest.mark.parametrize("field", ["person", "garment"])
def test_v2_refuses_larger_ones(size: tuple[int, int], field: str) -> None:
    with pytest.raises(PictureProblem) as refused:
        _prepared_try_on(TryOnV2Request, **{field: picture(size, "L")})
    assert (refused.value.field, refused.value.kind) == (field, "picture_too_large")
