from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from support.input_images import as_input, picture, pixels, sizes

from serve_app.inputs.images import InputPicture
from serve_app.schemas.fields import Picture, PictureProblem
from serve_app.schemas.inpaint import EraseRequest


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
