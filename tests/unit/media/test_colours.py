"""Colours of other spaces come in as those of sRGB; figures by the matrices of CSS Color 4."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms
from support.pictures import file_of

from serve_app.inputs.images import in_srgb, read_image

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
_COLORANTS = {
    b"rXYZ": (0.51512, 0.24120, -0.00105),
    b"gXYZ": (0.29198, 0.69225, 0.04189),
    b"bXYZ": (0.15710, 0.06657, 0.78407),
}
"""Of Display P3, seen by D50."""


def display_p3() -> bytes:
    """The profile of sRGB with other primaries, which is all that they differ by."""
    profile = bytearray(SRGB)
    (count,) = struct.unpack_from(">I", profile, 128)
    for at in range(132, 132 + 12 * count, 12):
        name, offset, _ = struct.unpack_from(">4sII", profile, at)
        if name in _COLORANTS:
            struct.pack_into(">3i", profile, offset + 8, *(round(part * 65536) for part in _COLORANTS[name]))
    return bytes(profile)


P3 = display_p3()


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [((220, 60, 50), (239, 35, 36)), ((128, 128, 128), (128, 128, 128)), ((40, 160, 60), (0, 163, 40))],
)
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_wide_gamut_is_brought_into_srgb(kind: str, wide: tuple[int, int, int], narrow: tuple[int, int, int]) -> None:
    sent = file_of(
        Image.new("RGB", (16, 16), wide), kind, icc_profile=P3, **({} if kind == "PNG" else {"quality": 100})
    )
    with Image.open(io.BytesIO(read_image(sent).data)) as kept:
        assert "icc_profile" not in kept.info
        assert np.abs(np.asarray(kept)[8, 8].astype(int) - narrow).max() <= 6


def test_what_is_srgb_stays_to_the_pixel() -> None:
    noise = Image.fromarray(np.random.default_rng(7).integers(0, 256, (64, 64, 3), np.uint8))
    assert in_srgb(noise, SRGB).tobytes() == noise.tobytes()
    with Image.open(io.BytesIO(read_image(file_of(noise, "PNG", icc_profile=SRGB)).data)) as kept:
        assert kept.tobytes() == noise.tobytes()


def test_opacity_stays() -> None:
    picture = Image.new("RGBA", (4, 4), (220, 60, 50, 77))
    converted = in_srgb(picture, P3)
    assert converted.mode == "RGBA"
    pixel = np.asarray(converted)[0, 0]
    assert pixel[3] == 77
    assert abs(int(pixel[0]) - 239) <= 2


@pytest.mark.parametrize("profile", [None, b"", b"no profile", P3[:200], b"\0" * 2**21, SRGB])
@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_profile_that_does_not_fit_changes_nothing(mode: str, profile: bytes | None) -> None:
    picture = Image.new(mode, (4, 4), 90)
    assert in_srgb(picture, profile) is picture


def test_a_palette_has_the_colours_of_its_profile() -> None:
    palette = Image.new("RGB", (8, 8), (220, 60, 50)).convert("P", palette=Image.Palette.ADAPTIVE)
    with Image.open(io.BytesIO(read_image(file_of(palette, "PNG", icc_profile=P3)).data)) as kept:
        assert np.abs(np.asarray(kept)[0, 0].astype(int) - (239, 35, 36)).max() <= 2
