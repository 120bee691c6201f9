from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError
from support.input_images import as_input, input_image, pixels, sizes

from serve_app.inputs.geometry import MAX_SIDE
from serve_app.schemas.fields import ImageProblem, RequestImage
from serve_app.schemas.outpainting import MAX_OFFSET, OutpaintingRequest
from serve_app.schemas.tools import MAX_PIXELS


def _request(width: Any = 128, height: Any = 96, x: Any = None, y: Any = None, **more: Any) -> OutpaintingRequest:
    body = {"input_image": "a", "width": width, "height": height, "reference_offset_x": x, "reference_offset_y": y}
    return OutpaintingRequest.model_validate(body | more)


def _problem(request: OutpaintingRequest, size: tuple[int, int] = (64, 64)) -> tuple[str, str, str]:
    with pytest.raises(ImageProblem) as refused:
        request.prepare_images([RequestImage("references", input_image(size))])
    return refused.value.field, refused.value.kind, str(refused.value)


def test_canvas_and_offset_have_limits() -> None:
    assert _request(MAX_SIDE, MAX_PIXELS // MAX_SIDE, -MAX_OFFSET, MAX_OFFSET).chosen_mode() == "high"
    refused: list[dict[str, Any]] = [{"width": MAX_SIDE + 1}, {"height": MAX_SIDE + 1}, {"width": 2049, "height": 2048}]
    for body in (*refused, {"x": -MAX_OFFSET - 1}, {"y": MAX_OFFSET + 1}, {"x": True}):
        with pytest.raises(ValidationError):
            _request(**body)


@pytest.mark.parametrize(
    ("offset", "size", "field", "accepted"),
    [
        ((-1, 0), (64, 64), "reference_offset_x", "between 0 and 64 for a reference 64 wide on a canvas 128 wide"),
        ((65, 0), (64, 64), "reference_offset_x", "between 0 and 64 for a reference 64 wide on a canvas 128 wide"),
        ((None, 33), (64, 64), "reference_offset_y", "between 0 and 32 for a reference 64 high on a canvas 96 high"),
        ((None, None), (129, 64), "width", "at least 129 for a reference 129 wide"),
        ((None, None), (64, 97), "height", "at least 97 for a reference 97 high"),
    ],
)
def test_reference_that_sticks_out_needs_auto_crop(
    offset: Any, size: tuple[int, int], field: str, accepted: str
) -> None:
    message = f"{field} must be {accepted}, or set auto_crop"
    assert _problem(_request(128, 96, *offset), size) == (field, "reference_overflow", message)


@pytest.mark.parametrize("auto_crop", [False, True])
@pytest.mark.parametrize(
    ("offset", "field", "cropped"),
    [((-64, 0), "reference_offset_x", "between -63 and 127"), ((0, 96), "reference_offset_y", "between -63 and 95")],
)
def test_reference_outside_is_refused_without_advice(offset: Any, field: str, cropped: str, auto_crop: bool) -> None:
    *problem, message = _problem(_request(128, 96, *offset, auto_crop=auto_crop))
    assert problem == [field, "reference_outside"]
    assert (cropped if auto_crop else "between 0 and ") in message
    assert "auto_crop" not in message


@pytest.mark.parametrize(
    ("offset", "size", "more_than"),
    [
        ((None, None), (128, 96), (128, 96)),
        ((-100, None), (300, 200), (200, 200)),
        ((-172, -104), (300, 200), (128, 96)),
    ],
)
def test_reference_that_covers_the_canvas_is_refused(
    offset: Any, size: tuple[int, int], more_than: tuple[int, int]
) -> None:
    field, kind, message = _problem(_request(128, 96, *offset, auto_crop=True), size)
    assert (field, kind) == ("width", "nothing_to_paint")
    assert f"width more than {more_than[0]} or height more than {more_than[1]}, or move" in message
    assert "offset" not in _problem(_request(128, 96), (128, 96))[2], "moved without auto_crop, it would stick out"
    for width, height in ((more_than[0], 96), (128, more_than[1])):
        assert _problem(_request(width, height, *offset, auto_crop=True), size)[1] == "nothing_to_paint"
    for width, height in ((more_than[0] + 1, 96), (128, more_than[1] + 1)):
        request = _request(width, height, *offset, auto_crop=True)
        assert request.prepare_images([RequestImage("references", input_image(size))])


@settings(max_examples=60)
@given(
    st.tuples(st.integers(64, 140), st.integers(64, 140)),
    st.tuples(st.integers(3, 160), st.integers(3, 160)),
    st.tuples(st.none() | st.integers(-180, 180), st.none() | st.integers(-180, 180)),
    st.booleans(),
)
def test_canvas_holds_the_visible_reference_or_is_refused(
    size: tuple[int, int], reference: tuple[int, int], offset: tuple[int | None, int | None], auto_crop: bool
) -> None:
    request = _request(*size, *offset, auto_crop=auto_crop)
    source = np.random.default_rng(5).integers(0, 256, (reference[1], reference[0], 3), np.uint8)
    left, top = (
        (side - length) // 2 if value is None else value
        for side, length, value in zip(size, reference, offset, strict=True)
    )
    right, bottom = min(left + reference[0], size[0]), min(top + reference[1], size[1])
    x, y = max(left, 0), max(top, 0)
    visible_area = max(0, right - x) * max(0, bottom - y)
    valid = 0 < visible_area < size[0] * size[1] and (auto_crop or visible_area == reference[0] * reference[1])
    try:
        canvas, mask = request.prepare_images([RequestImage("references", as_input(Image.fromarray(source)))])
    except ImageProblem:
        assert not valid
        return
    assert valid
    assert sizes([canvas, mask]) == [size, size]
    assert (pixels(canvas.image)[y:bottom, x:right] == source[y - top : bottom - top, x - left : right - left]).all()
    assert (pixels(mask.image)[y:bottom, x:right] == 0).all()
    assert np.count_nonzero(pixels(mask.image) == 255) == size[0] * size[1] - visible_area
