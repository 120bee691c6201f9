from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image, ImageCms

from serve_app.media.geometry import MEGAPIXEL
from serve_app.media.inputs import InputPicture, read_image
from serve_app.media.resizing import scaled


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


@pytest.mark.parametrize(
    ("kind", "mode", "extension"),
    [
        ("JPEG", "RGB", "jpeg"),
        ("JPEG", "L", "jpeg"),
        ("JPEG", "CMYK", "png"),
        ("PNG", "RGB", "png"),
        ("PNG", "RGBA", "png"),
        ("PNG", "L", "png"),
        ("WEBP", "RGB", "png"),
        ("WEBP", "RGBA", "png"),
    ],
)
def test_kinds_of_files(kind: str, mode: str, extension: str) -> None:
    sent = _input(Image.new(mode, (300, 200), 200), kind)
    image = scaled(sent, 100 * 100)
    assert (image.extension, image.content_type) == (extension, f"image/{extension}")
    assert _opened(image).mode == _opened(sent).mode
    assert image.has_alpha == sent.has_alpha
    assert read_image(image.data) == image


def test_colours_are_weighed_by_their_opacity() -> None:
    picture = Image.new("RGBA", (400, 400), (255, 0, 0, 0))
    picture.paste((0, 0, 255, 255), (0, 0, 201, 400))
    edge = _opened(scaled(_input(picture), 100 * 100)).getpixel((50, 50))
    assert isinstance(edge, tuple)
    assert edge[0] <= 3, "no red shines through from what is transparent"
    assert edge[2] >= 252


def test_a_colour_profile_stays() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for kind in ("PNG", "JPEG"):
        image = scaled(_input(Image.new("RGB", (300, 200)), kind, icc_profile=profile), 100 * 100)
        assert _opened(image).info["icc_profile"] == profile


def test_metadata_does_not() -> None:
    exif = Image.Exif()
    exif[0x010E] = "a garden"
    image = scaled(_input(Image.new("RGB", (300, 200)), "JPEG", exif=exif), 100 * 100)
    assert b"garden" not in image.data
