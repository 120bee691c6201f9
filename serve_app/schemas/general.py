"""Requests of `gen-2-*`, `gen-kontext-pro` and `gen-pro`: text to image, edits, image prompts.

`width` and `height` 0 mean "not set", as null does: then an edit has its first image's own size (held to the limits,
its ratio kept), and text to image 1024x1024. The contract names no largest size, so it is that of `gen-3-image-klein`.
Any of the images may be left out; the others keep their order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import (
    AUTO,
    DEFAULT_TIER,
    MAX_AREA,
    MAX_SIDE,
    MIN_SIDE,
    RATIOS,
    TIERS,
    Ratio,
    Size,
    image_size,
    scale_to,
    size_for,
)
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import (
    JSON_NUMBER,
    JSON_REAL,
    Flag,
    ImageFormat,
    ImageInput,
    NullIsUnset,
    Prompt,
    Role,
    Text,
    check_exact_size,
    zero_is_unset,
)
from serve_app.schemas.tolerant import IMAGE_LIMITS, UPSAMPLING, TolerantRequest, UpsamplingRequest, with_opposite

MAX_IMAGES: Final = 8
MAX_SAFETY_TOLERANCE: Final = 6
"""Highest level, which an operator has to approve: the catalog approves up to 5."""


Side = Annotated[
    Annotated[int, Field(ge=MIN_SIDE, le=MAX_SIDE), JSON_NUMBER] | None,
    BeforeValidator(zero_is_unset),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": MIN_SIDE, "maximum": MAX_SIDE},
                {"type": "integer", "const": 0},
                {"type": "null"},
            ]
        }
    ),
]


def _image(ordinal: str) -> Any:
    return Field(default=None, repr=False, description=f"The {ordinal} image to take from.")


class Gen2ProRequest(TolerantRequest):
    """Text to image when no image is sent, else an edit of the first. Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {
        "input_image": "references",
        **{f"input_image_{number}": "references" for number in range(2, MAX_IMAGES + 1)},
    }
    other_names: ClassVar[frozenset[str]] = frozenset((UPSAMPLING,))

    prompt: Prompt = Field(
        description="Content of the image, or the change to make.", examples=["A lighthouse on a cliff at dawn"]
    )
    input_image: ImageInput | None = Field(
        default=None,
        repr=False,
        description=f"The image to edit ({IMAGE_LIMITS}). It sets the default size.",
        examples=["https://example.com/garden.jpeg"],
    )
    input_image_2: ImageInput | None = _image("second")
    input_image_3: ImageInput | None = _image("third")
    input_image_4: ImageInput | None = _image("fourth")
    input_image_5: ImageInput | None = _image("fifth")
    input_image_6: ImageInput | None = _image("sixth")
    input_image_7: ImageInput | None = _image("seventh")
    input_image_8: ImageInput | None = _image("eighth")
    width: Side = Field(
        default=0,
        validate_default=True,
        description="Width in pixels; needs `height`. 0: the first image's own, else 1024.",
        examples=[1280],
    )
    height: Side = Field(
        default=0,
        validate_default=True,
        description=f"Height in pixels; needs `width`. `width` x `height` is at most {MAX_AREA}.",
        examples=[720],
    )
    safety_tolerance: Annotated[int, Field(ge=0, le=MAX_SAFETY_TOLERANCE), JSON_NUMBER] | None = Field(
        default=None,
        description="Moderation tolerance, 0 (strictest) to 5; 6 if an operator approved it. 2 if omitted.",
        examples=[2],
    )
    # Not a field of this endpoint, but some clients send it: only a plain true means anything.
    disable_pup: SkipJsonSchema[Any] = None

    def asks_for_rewriting(self) -> bool:
        return self.disable_pup is False and "disable_pup" in self.model_fields_set

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        size = image_size(
            width=self.width,
            height=self.height,
            aspect_ratio=AUTO if sizes else "1:1",
            reference=sizes[0] if sizes else None,
        ).size
        assert size is not None
        resolved = defaults.resolve(
            prompt=self.prompt, seed=self.seed_or_random(), output_format=self.output_format, size=size
        )
        return replace(resolved, rewrite=self.disable_pup is not True)

    @model_validator(mode="before")
    @classmethod
    def _takes_the_opposite(cls, body: Any) -> Any:
        return with_opposite(body, "disable_pup", "prompt_upsampling")

    @model_validator(mode="after")
    def _exact_size_is_valid(self) -> Self:
        check_exact_size(self.width, self.height)
        return self


class Gen2MaxRequest(Gen2ProRequest):
    """Adds removal of the background to `gen-2-pro`. `prompt_upsampling` is the opposite of `disable_pup`."""

    disable_pup: Flag = Field(default=False, description="Takes the prompt as it is, not rewritten.", examples=[False])
    transparent_bg: Flag = Field(
        default=False,
        description="Removes the background: a PNG with transparency, whatever `output_format` says.",
        examples=[False],
    )

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        resolved = super().resolve(defaults, sizes)
        return replace(resolved, transparent=True, output_format="png") if self.transparent_bg else resolved


AREA: Final = TIERS[DEFAULT_TIER]
WIDEST: Final = RATIOS["21:9"]
TALLEST: Final = RATIOS["9:21"]

_NUMBER: Final = r"[0-9]{1,5}(\.[0-9]{1,3})?"
_FORM: Final = f"^{_NUMBER}:{_NUMBER}$"


def parse_ratio(text: str) -> Ratio:
    """Parses a text that matches RatioText's pattern. Raises ZeroDivisionError."""
    width, height = text.split(":")
    return Fraction(width) / Fraction(height)


def _in_range(text: str) -> str:
    if re.fullmatch(_FORM, text) is None:
        message = "Input should be a ratio like 16:9, from 21:9 to 9:21; left out, it is that of the first image"
        raise PydanticCustomError("string_pattern_mismatch", message)
    try:
        ratio = parse_ratio(text)
    except ZeroDivisionError:
        ratio = Fraction(0)
    if not TALLEST <= ratio <= WIDEST:
        raise PydanticCustomError("ratio_out_of_range", "Input should be a ratio between 21:9 and 9:21")
    return text


RatioText = Annotated[str, Field(json_schema_extra={"pattern": _FORM}), AfterValidator(_in_range)]


def _kontext_image(ordinal: str) -> Any:
    return Field(default=None, repr=False, description=f"The {ordinal} image to take from. Experimental.")


class KontextRequest(UpsamplingRequest):
    """Text to image when no image is sent, else an edit of the first. Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {
        "input_image": "references",
        "input_image_2": "references",
        "input_image_3": "references",
        "input_image_4": "references",
    }

    prompt: Prompt = Field(
        description="Change to make, or content of a new image.", examples=["Replace the sky with a starry night"]
    )
    input_image: ImageInput | None = Field(
        default=None,
        repr=False,
        description=f"The image to edit ({IMAGE_LIMITS}). It sets the default ratio.",
        examples=["https://example.com/garden.jpeg"],
    )
    input_image_2: ImageInput | None = _kontext_image("second")
    input_image_3: ImageInput | None = _kontext_image("third")
    input_image_4: ImageInput | None = _kontext_image("fourth")
    aspect_ratio: RatioText | None = Field(
        default=None,
        description="Ratio of width to height, any between `21:9` and `9:21`, at about one megapixel. Left out: the "
        "first image's, else `1:1`.",
        examples=["16:9", "1.85:1"],
    )
    output_format: Annotated[ImageFormat, NullIsUnset()] = Field(
        default="png", description="File format of the result.", examples=["jpeg"]
    )

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        if self.aspect_ratio is None and sizes:
            size = scale_to(*sizes[0], AREA)
        else:
            size = size_for(parse_ratio(self.aspect_ratio or "1:1"), AREA)
        resolved = defaults.resolve(
            prompt=self.prompt, seed=self.seed_or_random(), output_format=self.output_format, size=size
        )
        return replace(resolved, rewrite=self.prompt_upsampling)


MIN_PRO_SIDE: Final = 256
MAX_PRO_SIDE: Final = 1440
GRID: Final = 32

ProSide = Annotated[int, Field(ge=MIN_PRO_SIDE, le=MAX_PRO_SIDE, multiple_of=GRID), JSON_NUMBER, NullIsUnset()]


class ProRequest(UpsamplingRequest):
    """Width and height have defaults of their own, so either may be sent alone. Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image_prompt": "image_prompt"}

    prompt: Annotated[Text, NullIsUnset()] = Field(
        default="", description="Content of the image.", examples=["A lighthouse on a cliff at dawn"]
    )
    image_prompt: ImageInput | None = Field(
        default=None,
        repr=False,
        description=f"An image to work from as from a prompt ({IMAGE_LIMITS}).",
        examples=["https://example.com/garden.jpeg"],
    )
    width: ProSide = Field(default=1024, description="Width in pixels, a multiple of 32.", examples=[1024])
    height: ProSide = Field(default=768, description="Height in pixels, a multiple of 32.", examples=[768])
    steps: Annotated[int, Field(ge=1, le=50), JSON_NUMBER, NullIsUnset()] = Field(
        default=40, description="Denoising steps. Fewer are faster and coarser.", examples=[40]
    )
    guidance: Annotated[float, Field(ge=1.5, le=5, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=2.5, description="Higher keeps closer to the prompt, at the cost of realism.", examples=[2.5]
    )
    interval: Annotated[float, Field(ge=1, le=4, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=2, description="Guidance is applied at every n-th step.", examples=[2]
    )

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        resolved = defaults.resolve(
            prompt=self.prompt,
            seed=self.seed_or_random(),
            output_format=self.output_format,
            size=Size(self.width, self.height),
            steps=self.steps,
            guidance=self.guidance,
        )
        return replace(resolved, guidance_interval=self.interval, rewrite=self.prompt_upsampling)
