"""The bodies of `POST /v1/gen-2-max`, `gen-2-pro-preview` and `gen-2-pro`: text to image, or an edit of up to eight.

`width` and `height` 0 mean "not set", as null does: then an edit has its first picture's own size (held to the limits,
its ratio kept), and text to image 1024x1024. The contract names no largest size, so it is that of `gen-3-image-klein`.
Of the pictures, any may be left out; those that are sent keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from serve_app.media.geometry import AUTO, MAX_AREA, MAX_SIDE, MIN_SIDE, picture_size
from serve_app.requests.fields import JSON_NUMBER, Flag, ImageInput, Prompt, check_exact_size
from serve_app.requests.pictures import Role
from serve_app.requests.plan import Plan
from serve_app.requests.tolerant import LIMITS_OF_A_PICTURE, TolerantRequest, with_opposite

MAX_PICTURES: Final = 8
MAX_SAFETY_TOLERANCE: Final = 6
"""The last has to be approved by an operator: the catalog approves up to 5."""


def _zero_is_unset(value: Any) -> Any:
    return None if value == 0 and not isinstance(value, bool) else value


Side = Annotated[
    Annotated[int, Field(ge=MIN_SIDE, le=MAX_SIDE), JSON_NUMBER] | None,
    BeforeValidator(_zero_is_unset),
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


def _further(place: str) -> Any:
    return Field(default=None, repr=False, description=f"The {place} picture to take from.")


class Gen2ProRequest(TolerantRequest):
    """Text to image when no picture is sent, else an edit of the first. Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {
        "input_image": "references",
        **{f"input_image_{number}": "references" for number in range(2, MAX_PICTURES + 1)},
    }

    prompt: Prompt = Field(
        description="What the picture shows, or how to change it.", examples=["A lighthouse on a cliff at dawn"]
    )
    input_image: ImageInput | None = Field(
        default=None,
        repr=False,
        description=f"The picture to edit ({LIMITS_OF_A_PICTURE}). It sets the default size.",
        examples=["https://example.com/garden.jpeg"],
    )
    input_image_2: ImageInput | None = _further("second")
    input_image_3: ImageInput | None = _further("third")
    input_image_4: ImageInput | None = _further("fourth")
    input_image_5: ImageInput | None = _further("fifth")
    input_image_6: ImageInput | None = _further("sixth")
    input_image_7: ImageInput | None = _further("seventh")
    input_image_8: ImageInput | None = _further("eighth")
    width: Side = Field(
        default=0,
        validate_default=True,
        description="Width in pixels; needs `height`. 0: the first picture's own, else 1024.",
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
        description="How much is let through, 0 (strictest) to 5; 6 where an operator approved it. 2 when left out.",
        examples=[2],
    )
    # No field of this endpoint, but some clients send it: only a plain true means anything.
    disable_pup: SkipJsonSchema[Any] = None

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        decided = picture_size(
            width=self.width,
            height=self.height,
            aspect_ratio=AUTO if references else "1:1",
            reference=references[0] if references else None,
        )
        assert decided.size is not None
        return Plan(
            prompt=self.prompt,
            steps=None,
            seed=self.chosen_seed(),
            output_format=self.output_format,
            area=decided.area,
            width=decided.size.width,
            height=decided.size.height,
            rewrite=self.disable_pup is not True,
        )

    @model_validator(mode="before")
    @classmethod
    def _takes_the_opposite(cls, body: Any) -> Any:
        return with_opposite(body, "disable_pup", "prompt_upsampling")

    @model_validator(mode="after")
    def _exact_size_is_valid(self) -> Self:
        check_exact_size(self.width, self.height)
        return self


class Gen2MaxRequest(Gen2ProRequest):
    """As `gen-2-pro`, and a background that can be removed. `prompt_upsampling` is the opposite of `disable_pup`."""

    disable_pup: Flag = Field(default=False, description="Takes the prompt as it is, not rewritten.", examples=[False])
    transparent_bg: Flag = Field(
        default=False,
        description="Removes the background: a PNG with transparency, whatever `output_format` says.",
        examples=[False],
    )

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        plan = super().plan(references)
        return replace(plan, transparent=True, output_format="png") if self.transparent_bg else plan
