from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms
from support.images import encode_image
from support.input_images import as_input, input_image, pixels

from serve_app.inputs.geometry import MEGAPIXEL, Size
from serve_app.inputs.images import read_image
from serve_app.inputs.masks import alpha_mask, grey_mask, grow, mask_from_area, place_on_canvas, scale, white_area


@pytest.mark.parametrize(
    ("mode", "colour", "white"),
    [
        *(("L", 127, False), ("L", 128, True), ("1", 1, True), ("RGB", (255, 0, 0), False), ("LA", (255, 0), False)),
        *(("RGBA", (255, 255, 255, 128), True), ("RGBA", (255, 255, 255, 127), False)),
    ],
)
def test_bright_and_opaque_pixels_are_white(mode: str, colour: Any, white: bool) -> None:
    assert white_area(input_image((1, 1), mode, colour)).tolist() == [[white]]


def test_mask_of_an_area_has_that_white_area() -> None:
    area = np.random.default_rng(1).random((5, 9)) < 0.5
    mask = mask_from_area(area)
    assert set(np.unique(pixels(mask))) == {0, 255}
    assert (white_area(mask) == area).all()


@pytest.mark.parametrize("pixels", [1, 2, 10, 25])
def test_point_grows_to_a_disc(pixels: int) -> None:
    area = np.zeros((61, 71), np.bool_)
    area[30, 35] = True
    disc = grow(area, pixels)
    rows, columns = np.nonzero(disc)
    assert (rows.min(), rows.max()) == (30 - pixels, 30 + pixels)
    assert (columns.min(), columns.max()) == (35 - pixels, 35 + pixels)
    assert (disc == disc[::-1, ::-1]).all()
    distances = np.hypot(rows - 30, columns - 35)
    assert distances.max() <= pixels + 1, "round, not square"
    assert disc.sum() == pytest.approx(np.pi * (pixels + 0.5) ** 2, rel=0.35)


@settings(max_examples=50)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_growth_adds_pixels_within_reach(width: int, height: int, seed: int, pixels: int) -> None:
    area = np.random.default_rng(seed).random((height, width)) < 0.1
    more, most = grow(area, pixels), grow(area, pixels + 1)
    assert (more >= area).all()
    assert (most >= more).all()
    for row, column in product(range(height), range(width)):
        near = area[max(0, row - pixels) : row + pixels + 1, max(0, column - pixels) : column + pixels + 1]
        assert near.any() or not more[row, column]


def test_grey_mask_keeps_its_shades_without_a_profile() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    mask = grey_mask(read_image(encode_image(Image.new("RGB", (2, 2), (90, 90, 90)), icc_profile=profile)))
    assert pixels(mask)[0, 0] == 90
    assert b"iCCP" not in mask.data


def test_only_transparent_image_has_an_alpha_mask() -> None:
    assert alpha_mask(input_image((1, 1))) is None
    assert alpha_mask(input_image((1, 1), "RGBA", (0, 0, 0, 255))) is None
    mask = alpha_mask(input_image((1, 1), "RGBA", (0, 0, 0, 55)))
    assert mask is not None
    assert pixels(mask)[0, 0] == 200


def _noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8))


@pytest.mark.slow
@settings(max_examples=200)
@given(*[st.integers(1, 24)] * 4, *[st.integers(-24, 24)] * 2)
def test_canvas_repeats_the_nearest_pixel_around_the_image(
    width: int, height: int, canvas_width: int, canvas_height: int, left: int, top: int
) -> None:
    assume(-width < left < canvas_width and -height < top < canvas_height)
    assume(max(width, height) <= 64 * min(width, height))
    noise = _noise(width, height)
    canvas, mask = place_on_canvas(as_input(noise), Size(canvas_width, canvas_height), left, top)
    canvas_pixels, open_part, own = pixels(canvas), pixels(mask), np.asarray(noise)
    # Each pixel of the canvas has the colour of the nearest pixel of the image that is inside.
    rows = np.clip(np.arange(canvas_height), max(top, 0), min(top + height, canvas_height) - 1) - top
    columns = np.clip(np.arange(canvas_width), max(left, 0), min(left + width, canvas_width) - 1) - left
    assert (canvas_pixels == own[np.ix_(rows, columns)]).all()
    own_rows = (np.arange(canvas_height) - top == rows)[:, None]
    own_columns = (np.arange(canvas_width) - left == columns)[None, :]
    assert (open_part == np.where(own_rows & own_columns, 0, 255)).all()


@pytest.mark.parametrize("mode", ["L", "RGBA", "LA", "P", "1"])
def test_canvas_of_any_mode_is_rgb(mode: str) -> None:
    canvas, mask = place_on_canvas(as_input(_noise(8, 8).convert(mode)), Size(12, 12), 2, 2)
    assert pixels(canvas).shape == (12, 12, 3)
    assert pixels(mask).shape == (12, 12)


@pytest.mark.parametrize(("alpha", "shade"), [(0, 255), (255, 0), (51, 204)])
def test_transparent_parts_become_white(alpha: int, shade: int) -> None:
    canvas, mask = place_on_canvas(input_image((4, 4), "RGBA", (0, 0, 0, alpha)), Size(6, 4), 0, 0)
    assert (pixels(canvas) == shade).all()
    assert (pixels(mask)[:, :4] == 0).all(), "transparency does not ask for paint"


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((3000, 2000), (1254, 836)),
        ((2000, 3000), (836, 1254)),
        ((18_000, 300), (6256, 104)),
    ],
)
def test_scaled_image_keeps_its_ratio(size: tuple[int, int], expected: tuple[int, int]) -> None:
    image = scale(input_image(size, "L"), MEGAPIXEL)
    assert pixels(image).shape[::-1] == (image.width, image.height) == expected


def test_scaling_weighs_colours_by_their_opacity() -> None:
    half = Image.new("RGBA", (400, 400), (255, 0, 0, 0))
    half.paste((0, 0, 255, 255), (0, 0, 201, 400))
    edge = pixels(scale(as_input(half), 100 * 100))[50, 50]
    assert edge[0] <= 3, "no red shines through from what is transparent"
    assert edge[2] >= 252
