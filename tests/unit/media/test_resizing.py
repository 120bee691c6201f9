from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from serve_app.inputs.geometry import MEGAPIXEL
from serve_app.inputs.images import InputPicture, read_image
from serve_app.inputs.masks import scaled


def _input(image: Image.Image, kind: str = "PNG", **options: Any) -> InputPicture:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return read_image(buffer.getvalue())


def _opened(image: InputPicture) -> Image.Image:
    return Image.open(io.BytesIO(image.data))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((3000, 2000), (1254, 836)),
        ((2000, 3000), (836, 1254)),
        ((2048, 2048), (1024, 1024)),
        ((18_000, 300), (6256, 104)),
    ],
)
def test_the_ratio_is_kept(size: tuple[int, int], expected: tuple[int, int]) -> None:
    image = scaled(_input(Image.new("L", size)), MEGAPIXEL)
    assert (image.width, image.height) == expected == _opened(image).size


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_modes_are_kept(mode: str) -> None:
    sent = _input(Image.new(mode, (300, 200), 200))
    image = scaled(sent, 100 * 100)
    assert _opened(image).mode == mode
    assert image.has_alpha == sent.has_alpha
    assert read_image(image.data) == image


def test_colours_are_weighed_by_their_opacity() -> None:
    picture = Image.new("RGBA", (400, 400), (255, 0, 0, 0))
    picture.paste((0, 0, 255, 255), (0, 0, 201, 400))
    edge = _opened(scaled(_input(picture), 100 * 100)).getpixel((50, 50))
    assert isinstance(edge, tuple)
    assert edge[0] <= 3, "no red shines through from what is transparent"
    assert edge[2] >= 252
