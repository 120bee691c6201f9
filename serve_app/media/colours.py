"""The colours of a picture as models know them: those of sRGB.

A camera's file may count in others (Display P3, Adobe RGB), or in inks, and says so by a profile. Taken for sRGB such a
picture is dull: so it is converted once, where it comes in, and no profile goes any further.
"""

from __future__ import annotations

import io
from itertools import product
from typing import Any, Final, cast

from PIL import Image, ImageChops, ImageCms

MAX_PROFILE_BYTES: Final = 8 * 2**20
_SPACES: Final = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGB", "CMYK": "CMYK"}
"""What a profile for each mode is for."""
_ROUNDING: Final = 2
"""Of 255: profiles of sRGB by its many makers differ from each other by as much."""
_STEPS: Final = (0, 36, 73, 109, 146, 182, 219, 255)


def in_srgb(picture: Image.Image, profile: bytes | None) -> Image.Image:
    """`picture` is 8-bit grey, RGB, RGBA or CMYK. It comes back in the same mode, but CMYK as RGB; unchanged, to the
    pixel, where the profile is that of sRGB, is for another mode, or makes no sense."""
    if not profile or len(profile) > MAX_PROFILE_BYTES:
        return picture
    try:
        its = ImageCms.getOpenProfile(io.BytesIO(profile))
        if cast(Any, its.profile).xcolor_space.strip() != _SPACES.get(picture.mode):
            return picture
        if picture.mode == "RGBA":
            converted = _converted(picture.convert("RGB"), its)
            converted.putalpha(picture.getchannel("A"))
            return converted
        return _converted(picture, its)
    except (ImageCms.PyCMSError, OSError):
        return picture


def _converted(picture: Image.Image, its: ImageCms.ImageCmsProfile) -> Image.Image:
    grey = picture.mode == "L"
    # Little CMS has no grey of sRGB's own; of neutral colours all channels are the same.
    to_srgb = ImageCms.buildTransform(its, ImageCms.createProfile("sRGB"), picture.mode, "RGB")
    if picture.mode != "CMYK":
        probe = _greys() if grey else _samples()
        after = cast(Image.Image, ImageCms.applyTransform(probe, to_srgb))
        if max(high for _, high in _extrema(ImageChops.difference(probe.convert("RGB"), after))) <= _ROUNDING:
            return picture
    converted = cast(Image.Image, ImageCms.applyTransform(picture, to_srgb))
    return converted.convert("L") if grey else converted


def _greys() -> Image.Image:
    probe = Image.new("L", (256, 1))
    probe.putdata(range(256))
    return probe


def _samples() -> Image.Image:
    """Colours from all over the cube."""
    probe = Image.new("RGB", (len(_STEPS) ** 2, len(_STEPS)))
    probe.putdata(list(product(_STEPS, repeat=3)))
    return probe


def _extrema(picture: Image.Image) -> list[tuple[int, int]]:
    return cast(list[tuple[int, int]], picture.getextrema())
