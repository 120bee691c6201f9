"""The body of `POST /v1/gen-kontext-pro`: an edit of up to four pictures, or text to image; always about a megapixel.

The ratio is `aspect_ratio`, any between 21:9 and 9:21, else the first picture's own, else 1:1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from serve_app.media.geometry import DEFAULT_TIER, RATIOS, TIERS, Ratio, Size, scale_to, size_for
from serve_app.requests.fields import ImageInput, NullIsUnset, PictureFormat, Prompt
from serve_app.requests.pictures import Role
from serve_app.requests.plan import Plan
from serve_app.requests.tolerant import LIMITS_OF_A_PICTURE, UpsamplingRequest

AREA: Final = TIERS[DEFAULT_TIER]
WIDEST: Final = RATIOS["21:9"]
TALLEST: Final = RATIOS["9:21"]

_NUMBER: Final = r"[0-9]{1,5}(\.[0-9]{1,3})?"
_FORM: Final = f"^{_NUMBER}:{_NUMBER}$"


def ratio_of(text: str) -> Ratio:
    """The ratio that a text of the right form names. Raises ZeroDivisionError."""
    width, height = text.split(":")
    return Fraction(width) / Fraction(height)


def _in_range(text: str) -> str:
    if re.fullmatch(_FORM, text) is None:
        message = "Input should be a ratio like 16:9, from 21:9 to 9:21; left out, it is that of the first picture"
        raise PydanticCustomError("string_pattern_mismatch", message)
    try:
        ratio = ratio_of(text)
    except ZeroDivisionError:
        ratio = Fraction(0)
    if not TALLEST <= ratio <= WIDEST:
        raise PydanticCustomError("ratio_out_of_range", "Input should be a ratio between 21:9 and 9:21")
    return text


RatioText = Annotated[str, Field(json_schema_extra={"pattern": _FORM}), AfterValidator(_in_range)]


def _further(place: str) -> Any:
    return Field(default=None, repr=False, description=f"The {place} picture to take from. Experimental.")


class KontextRequest(UpsamplingRequest):
    """Text to image when no picture is sent, else an edit of the first. Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {
        "input_image": "references",
        "input_image_2": "references",
        "input_image_3": "references",
        "input_image_4": "references",
    }

    prompt: Prompt = Field(
        description="How to change the picture, or what to show.", examples=["Replace the sky with a starry night"]
    )
    input_image: ImageInput | None = Field(
        default=None,
        repr=False,
        description=f"The picture to edit ({LIMITS_OF_A_PICTURE}). It sets the default ratio.",
        examples=["https://example.com/garden.jpeg"],
    )
    input_image_2: ImageInput | None = _further("second")
    input_image_3: ImageInput | None = _further("third")
    input_image_4: ImageInput | None = _further("fourth")
    aspect_ratio: RatioText | None = Field(
        default=None,
        description="Ratio of width to height, any between `21:9` and `9:21`, at about one megapixel. Left out: the "
        "first picture's, else `1:1`.",
        examples=["16:9", "1.85:1"],
    )
    output_format: Annotated[PictureFormat, NullIsUnset()] = Field(
        default="png", description="File format of the result.", examples=["jpeg"]
    )

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        size = self._size(references)
        return Plan(
            prompt=self.prompt,
            steps=None,
            seed=self.chosen_seed(),
            output_format=self.output_format,
            area=size.area,
            width=size.width,
            height=size.height,
            rewrite=self.prompt_upsampling,
        )

    def _size(self, references: Sequence[tuple[int, int]]) -> Size:
        if self.aspect_ratio is not None:
            return size_for(ratio_of(self.aspect_ratio), AREA)
        return scale_to(*references[0], AREA) if references else size_for(Fraction(1), AREA)
