"""Requests of `gen-3-image-klein`: text to image, or edits with up to ten references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Final, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import DEFAULT_RATIO, MAX_AREA, MAX_SIDE, MIN_SIDE, RATIOS, image_size, size_within
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import (
    JSON_NUMBER,
    LOWER_CASE,
    AspectRatio,
    GenerationRequest,
    ImageFormat,
    ImageInput,
    NullIsUnset,
    Prompt,
    Resolution,
    Role,
    Seed,
    check_exact_size,
    located_error,
    random_seed,
)
from serve_app.schemas.layout import LayoutError, check_references, parse_layout

MAX_REFERENCES: Final = 10
MAX_STEPS: Final = 16
MAX_SAFETY_TOLERANCE: Final = 7

Side = Annotated[int, Field(ge=MIN_SIDE, le=MAX_SIDE), JSON_NUMBER]


class ImageKleinRequest(GenerationRequest):
    """Text to image when `images` is left out, else an edit of its first item. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")
    image_fields: ClassVar[Mapping[str, Role]] = {"images": "references"}

    prompt: Prompt = Field(
        description="Content of the image, or the change to make. It can end with a JSON array that places elements: "
        "boxes are `[top, left, bottom, right]`, 0 to 1000.",
        examples=[
            "A lighthouse on a cliff at dawn, oil painting",
            'A quiet room with <cat_1> [{"id": "cat_1", "bbox": [400, 300, 900, 700], "desc": "a sleeping cat"}]',
        ],
    )
    images: Annotated[list[ImageInput], Field(min_length=1, max_length=MAX_REFERENCES)] | None = Field(
        default=None,
        repr=False,
        description="1 to 10 reference images (JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB "
        "and 20 megapixels each). The first is the one to edit and sets the default output size.",
        examples=[["https://example.com/garden.jpeg"]],
    )
    aspect_ratio: Annotated[AspectRatio, NullIsUnset()] = Field(
        default="auto",
        description="Ratio of width to height. `auto`: for edits that of the first reference, else chosen from the "
        "prompt, which itself stays as it is. Ignored when `width` and `height` are set.",
        examples=["16:9"],
    )
    resolution: Annotated[Resolution, LOWER_CASE] | None = Field(
        default=None,
        description="Size tier; every ratio has about the same area at one tier. Left out: `1k` for text to image; for "
        "edits the first reference's own size, or its nearest tier when `aspect_ratio` is set. Ignored when `width` "
        "and `height` are set.",
        examples=["1k"],
    )
    width: Side | None = Field(
        default=None,
        description="Exact width in pixels; needs `height`. Overrides `resolution` and `aspect_ratio`.",
        examples=[1280],
    )
    height: Side | None = Field(
        default=None,
        description=f"Exact height in pixels; needs `width`. `width` x `height` is at most {MAX_AREA}.",
        examples=[720],
    )
    seed: Seed | None = Field(
        default=None,
        description="Seed of the image: the same request with the same seed gives the same image. Random if omitted.",
        examples=[42],
    )
    safety_tolerance: Annotated[int, Field(ge=0, le=MAX_SAFETY_TOLERANCE), JSON_NUMBER] | None = Field(
        default=None,
        description="Moderation tolerance, 0 (strictest) to 7. The approved levels depend on your organization.",
        examples=[2],
    )
    output_format: Annotated[ImageFormat, NullIsUnset()] = Field(
        default="jpeg", description="File format of the result.", examples=["png"]
    )
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS), JSON_NUMBER, NullIsUnset()] = Field(
        default=MAX_STEPS, description="Denoising steps. Fewer are faster and coarser.", examples=[MAX_STEPS]
    )

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        size = image_size(
            width=self.width,
            height=self.height,
            aspect_ratio=self.aspect_ratio,
            resolution=self.resolution,
            reference=sizes[0] if sizes else None,
        )
        resolved = defaults.resolve(
            prompt=self.prompt,
            seed=random_seed() if self.seed is None else self.seed,
            output_format=self.output_format,
            size=size.size or size_within(RATIOS[DEFAULT_RATIO], size.area),
            area=size.area,
            steps=self.steps,
        )
        return replace(resolved, layout=parse_layout(self.prompt), open_ratio=size.size is None)

    @field_validator("prompt")
    @classmethod
    def _layout_is_valid(cls, prompt: str) -> str:
        try:
            parse_layout(prompt)
        except LayoutError as error:
            raise PydanticCustomError("layout", "{reason}", {"reason": str(error)}) from None
        return prompt

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        try:
            check_references(parse_layout(self.prompt), len(self.images or ()))
        except LayoutError as error:
            raise located_error("prompt", "layout", "{reason}", reason=str(error)) from None
        check_exact_size(self.width, self.height)
        return self
