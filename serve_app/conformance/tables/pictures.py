"""The picture endpoints, 1 to 9 and 12."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from serve_app.conformance import pictures
from serve_app.conformance.endpoints import CANNY, FILL, KLEIN, KONTEXT, MAX, PREVIEW, PRO
from serve_app.conformance.field import (
    Field,
    choice,
    flag,
    integer,
    number,
    picture,
    taken_over,
    text,
    tolerance,
    webhook,
)

_SIDE: Final = {"least": 64, "most": 6256}
# fmt: off
_RATIOS: Final = (
    "auto", "21:9", "2:1", "16:9", "3:2", "7:5", "4:3", "5:4", "1:1",
    "4:5", "3:4", "5:7", "2:3", "9:16", "1:2", "9:21",
)
# fmt: on
_PHOTO: Final = pictures.photo()
_URL: Final = "string or null: no: URI, length 1 to 2083"
_SECRET: Final = "string or null: no"
_COMMON: Final = webhook("as common types", "as common types")

_KLEIN: Final = (
    text("prompt", "string: free-form: Image description; examples carry it in every request"),
    Field(
        name="images",
        row="array of strings: 1 to 10 items, each http(s) URL or base64: First item is the image being edited and "
        "sets the default output size",
        kind="other",
        choices=([_PHOTO], [_PHOTO] * 10),
        wrong=([], [_PHOTO] * 11, [7]),
        contents=(["%%% no picture %%%"],),
    ),
    choice(
        "aspect_ratio",
        "string: `auto`: `auto`, `21:9`, `2:1`, `16:9`, `3:2`, `7:5`, `4:3`, `5:4`, `1:1`, `4:5`, `3:4`, `5:7`, `2:3`, "
        "`9:16`, `1:2`, `9:21`",
        *_RATIOS,
        wrong=("10:10", "16x9"),
    ),
    choice("resolution", "string: omitted: `768sq`, `1k`, `1.5k`, `2k`, `4k`", "768sq", "1k", "1.5k", "2k", "4k"),
    integer("width", "integer: 64 to 6256", **_SIDE, with_={"height": 64}),
    integer("height", "integer: 64 to 6256", **_SIDE, with_={"width": 64}),
    integer("seed", "integer: random: 0 to 4294967295: Reproducibility", 0, 4294967295),
    tolerance("integer: 0 to 7, 0 strictest", 7),
    choice("output_format", "string: `jpeg`: `jpeg`, `png`: Output format", "jpeg", "png"),
    integer("steps", "integer: 16: 1 to 16: Denoising steps", 1, 16),
)

_PREVIEW: Final = (
    text("prompt", "string: yes: text prompt", required=True),
    *(
        picture(
            f"input_image{suffix}",
            "string or null: no: path to the first to eighth input image",
            nullable=True,
        )
        for suffix in ("", *(f"_{number}" for number in range(2, 9)))
    ),
    integer("seed", "integer or null: no", nullable=True),
    integer("width", "integer or null: no: 0: at least 64", 64, nullable=True, paired="height", with_={"height": 64}),
    integer("height", "integer or null: no: 0: at least 64", 64, nullable=True, paired="width", with_={"width": 64}),
    tolerance("integer: no: 2: 0 to 5, 0 strictest", 5),
    choice("output_format", "string or null: no: `jpeg`: `jpeg`, `png`, `webp`", "jpeg", "png", "webp", nullable=True),
    *webhook(_URL, _SECRET),
)
_MAX: Final = (
    *_PREVIEW,
    flag("disable_pup", "boolean: no: false: disables prompt upsampling for this request"),
    flag("transparent_bg", "boolean: no: false: removes the background and returns a transparent RGBA PNG"),
)

_KONTEXT: Final = (
    text("prompt", "string: yes", required=True),
    picture("input_image", "string or null: no: base64 image or URL", nullable=True),
    *(
        picture(
            f"input_image_{number}",
            "string or null: no: base64 image or URL; experimental multi-reference",
            nullable=True,
        )
        for number in (2, 3, 4)
    ),
    integer("seed", "integer or null: no", nullable=True),
    Field(
        name="aspect_ratio",
        row="string or null: no: ratio between `21:9` and `9:21`",
        kind="choice",
        choices=("21:9", "9:21", "1:1", "16:9"),
        wrong=("22:9", "9:22"),
        nullable=True,
    ),
    choice("output_format", "string or null: no: `png`: `jpeg`, `png`", "jpeg", "png", nullable=True),
    *_COMMON,
    flag("prompt_upsampling", "boolean: no: false: rewrites the prompt for more creative output"),
    tolerance("integer: no: 2: 0 to 6, 0 strictest", 6),
)

_PRO: Final = (
    text("prompt", "string or null: empty string", nullable=True, choices=("",)),
    picture("image_prompt", "string or null: base64 image used as prompt", nullable=True),
    integer("width", "integer: 1024: 256 to 1440, multiple of 32: pixels", 256, 1440, multiple_of=32),
    integer("height", "integer: 768: 256 to 1440, multiple of 32: pixels", 256, 1440, multiple_of=32),
    integer("steps", "integer or null: 40: 1 to 50", 1, 50, nullable=True),
    flag("prompt_upsampling", "boolean: false"),
    integer("seed", "integer or null", nullable=True),
    number(
        "guidance",
        "number or null: 2.5: 1.5 to 5: higher improves prompt adherence at the cost of realism",
        1.5,
        5,
        nullable=True,
    ),
    tolerance("integer: 2: 0 to 6", 6),
    number("interval", "number or null: 2: 1 to 4: guidance control", 1, 4, nullable=True),
    choice("output_format", "string or null: `jpeg`: `jpeg`, `png`", "jpeg", "png", nullable=True),
    *webhook("common types", "common types"),
)


_SHARED: Final = (
    integer("steps", "integer or null: no: 50: 15 to 50", 15, 50, nullable=True),
    flag("prompt_upsampling", "boolean or null: no: false", nullable=True),
    integer("seed", "integer or null: no", nullable=True),
    choice("output_format", "string or null: no: `jpeg`: `jpeg`, `png`", "jpeg", "png", nullable=True),
    tolerance("integer: no: 2: 0 to 6", 6),
    *_COMMON,
)
"""What fill and canny have in common."""


_FILL_PICTURES: Final = (
    picture("image", "string: yes: base64 image to modify; may contain an alpha mask", required=True),
    Field(
        name="mask",
        row="string or null: no: base64 black-and-white mask, same dimensions as the image",
        kind="other",
        choices=(pictures.mask(),),
        contents=("%%% no picture %%%", pictures.mask(64, 64)),
    ),
)
_FILL_GUIDANCE: Final = number("guidance", "number or null: no: 60: 1.5 to 100", 1.5, 100, nullable=True)
_FILL: Final = (
    *_FILL_PICTURES,
    text("prompt", "string or null: no: empty string: description of the change", nullable=True, choices=("",)),
    *_SHARED,
    _FILL_GUIDANCE,
)


_CANNY: Final = (
    text("prompt", "string: yes", required=True),
    picture("control_image", "string or null: no: base64 image used when no preprocessed image is given"),
    picture("preprocessed_image", "string or null: no: bypasses the control preprocessing step", nullable=True),
    integer("canny_low_threshold", "integer or null: no: 50: 0 to 500", 0, 500, nullable=True),
    integer("canny_high_threshold", "integer or null: no: 200: 0 to 500", 0, 500, nullable=True),
    *_SHARED,
    number("guidance", "number or null: no: 30: 1 to 100", 1, 100, nullable=True),
)

_STRENGTH: Final = number(
    "finetune_strength", "number, default 1.1, range 0 to 2; 0 no influence, 1 full influence", 0, 2
)


_ID: Final = Field(name="finetune_id", row="string, required", kind="other", required=True)
_FROM_6: Final = "Same fields as endpoint 6"
_FROM_7: Final = "Same fields as endpoint 7"
_FROM_BASE: Final = "Each matches the request of its base endpoint and adds `finetune_id` and `finetune_strength`"

_FILL_TUNED: Final = (
    *taken_over(_FROM_6, (each for each in _FILL if each.name != "prompt")),
    text("prompt", "In this endpoint `prompt` is a string with default empty string.", choices=("",)),
    _ID,
    _STRENGTH,
)
_CANNY_TUNED: Final = (
    *taken_over(_FROM_7, (each for each in _CANNY if each.name not in ("control_image", "preprocessed_image"))),
    picture("control_image", "Here `control_image` is a required base64 string", required=True),
    _ID,
    _STRENGTH,
)

PICTURES: Final[Mapping[str, tuple[Field, ...]]] = {
    KLEIN: _KLEIN,
    MAX: _MAX,
    PREVIEW: taken_over("Same request fields as endpoint 2", _PREVIEW),
    KONTEXT: _KONTEXT,
    PRO: _PRO,
    FILL: _FILL,
    CANNY: _CANNY,
    f"{FILL}-finetuned": _FILL_TUNED,
    f"{CANNY}-finetuned": _CANNY_TUNED,
    f"{KLEIN}-finetuned": (*taken_over(_FROM_BASE, _KLEIN), _ID, _STRENGTH),
}
