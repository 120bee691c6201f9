from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from serve_app.inputs.geometry import Size
from serve_app.inputs.images import InputPicture, read_image
from serve_app.inputs.masks import laid_out

SIDES = st.integers(1, 24)
OFFSETS = st.integers(-24, 24)


def _input(image: Image.Image) -> InputPicture:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return read_image(buffer.getvalue())


def _noise(width: int, height: int, channels: int = 3) -> Image.Image:
    pixels = np.random.default_rng(width * 100 + height).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels)


def _pixels(image: InputPicture) -> np.ndarray:
    with Image.open(io.BytesIO(image.data)) as opened:
        return np.asarray(opened)


@pytest.mark.slow
@settings(max_examples=200)
@given(SIDES, SIDES, SIDES, SIDES, OFFSETS, OFFSETS)
def test_the_picture_lies_where_it_should(
    width: int, height: int, canvas_width: int, canvas_height: int, left: int, top: int
) -> None:
    assume(-width < left < canvas_width and -height < top < canvas_height)
    assume(max(width, height) <= 64 * min(width, height))
    picture = _noise(width, height)
    canvas, mask = laid_out(_input(picture), Size(canvas_width, canvas_height), left, top)
    assert (canvas.width, canvas.height) == (mask.width, mask.height) == (canvas_width, canvas_height)
    made, open_part, own = _pixels(canvas), _pixels(mask), np.asarray(picture)
    assert made.shape == (canvas_height, canvas_width, 3)
    assert open_part.shape == (canvas_height, canvas_width)
    # Each pixel of the canvas has the colour of the nearest pixel of the picture that is inside.
    rows = np.clip(np.arange(canvas_height), max(top, 0), min(top + height, canvas_height) - 1) - top
    columns = np.clip(np.arange(canvas_width), max(left, 0), min(left + width, canvas_width) - 1) - left
    assert (made == own[np.ix_(rows, columns)]).all()
    kept_rows = (np.arange(canvas_height) - top == rows)[:, None]
    kept_columns = (np.arange(canvas_width) - left == columns)[None, :]
    assert (open_part == np.where(kept_rows & kept_columns, 0, 255)).all()


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "1"])
def test_every_kind_of_picture_becomes_rgb(mode: str) -> None:
    canvas, mask = laid_out(_input(_noise(8, 8).convert(mode)), Size(12, 12), 2, 2)
    assert _pixels(canvas).shape == (12, 12, 3)
    assert _pixels(mask).shape == (12, 12)


@pytest.mark.parametrize(("alpha", "shade"), [(0, 255), (255, 0), (51, 204)])
def test_transparent_parts_are_over_white(alpha: int, shade: int) -> None:
    canvas, mask = laid_out(_input(Image.new("RGBA", (4, 4), (0, 0, 0, alpha))), Size(6, 4), 0, 0)
    assert (_pixels(canvas) == shade).all()
    assert (_pixels(mask)[:, :4] == 0).all(), "transparency does not ask for paint"
