"""The tools, whose fields the interface leaves open: as decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from serve_app.conformance import pictures
from serve_app.conformance.endpoints import DEBLUR, ERASE, OUTPAINTING, TRY_ON, TRY_ON_2
from serve_app.conformance.field import Field, choice, flag, integer, picture, text

_ALL: Final = (
    Field(
        name="seed",
        row="All take `seed` and `safety_tolerance` 0 to 5 (2)",
        kind="integer",
    ),
    integer("safety_tolerance", "All take `seed` and `safety_tolerance` 0 to 5 (2)", 0, 5, gated=True),
    Field(
        name="webhook_url",
        row="on every generation endpoint, strict ones too: `webhook_url`, `webhook_secret`, and `user`",
        kind="hook",
        nullable=True,
    ),
    text("user", "string 1 to 256 or null: the caller's own end-user id", nullable=True, wrong=("", "x" * 257)),
)


def _format(default: str) -> Field:
    return choice("output_format", f"({default})", "jpeg", "png", "webp")


_TRY_ON: Final = (
    text("prompt", "(optional)"),
    picture("person", "*", required=True),
    picture("garment", "*", required=True),
    _format("jpeg"),
    *_ALL,
)

TOOLS: Final[Mapping[str, tuple[Field, ...]]] = {
    ERASE: (
        picture("image", "*", required=True),
        Field(
            name="mask",
            row="* (black/white, same size, white = remove)",
            kind="other",
            required=True,
            choices=(pictures.mask(),),
            contents=("%%% no picture %%%", pictures.mask(64, 64)),
        ),
        integer("dilate_pixels", "0 to 25 (10)", 0, 25),
        _format("png"),
        *_ALL,
    ),
    OUTPAINTING: (
        picture("input_image", "*", required=True),
        integer("width", "* `height`* at least 64, w·h ≤ 4 MP", 64, required=True, with_={"auto_crop": True}),
        integer("height", "* at least 64, w·h ≤ 4 MP", 64, required=True, with_={"auto_crop": True}),
        integer(
            "reference_offset_x",
            "integer or null (null = centred, may be negative)",
            choices=(0, -8),
            nullable=True,
            with_={"auto_crop": True},
        ),
        integer(
            "reference_offset_y",
            "integer or null (null = centred, may be negative)",
            choices=(0, -8),
            nullable=True,
            with_={"auto_crop": True},
        ),
        flag("auto_crop", "false (an overflow is then a 422)"),
        choice("mode", "`high`/`fast`", "high", "fast"),
        _format("png"),
        *_ALL,
    ),
    TRY_ON: _TRY_ON,
    TRY_ON_2: _TRY_ON,
    DEBLUR: (picture("image", "*, at most 4 MP", required=True), _format("png"), *_ALL),
}
