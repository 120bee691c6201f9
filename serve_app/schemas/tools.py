"""Requests of tools: deblur and try-on, and their base.

The result has the first picture's own size, held to the service's limits, where a
tool does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from serve_app.inputs.geometry import MEGAPIXEL, fit
from serve_app.inputs.images import InputPicture
from serve_app.inputs.masks import scaled
from serve_app.schemas.fields import ImageInput, NullIsUnset, Picture, PictureFormat, PictureProblem, Role, Text
from serve_app.schemas.plan import Plan
from serve_app.schemas.tolerant import LIMITS_OF_A_PICTURE, TolerantRequest

MAX_PIXELS: Final = 4 * MEGAPIXEL
"""Of the pictures of those tools that take no larger ones, and of what outpainting makes."""

LIMITS_OF_A_SMALL_PICTURE: Final = (
    "JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 4 megapixels; turned upright"
)


class ToolRequest(TolerantRequest):
    output_format: Annotated[PictureFormat, NullIsUnset()] = Field(
        default="png", description="File format of the result.", examples=["png"]
    )

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        size = fit(*references[0])
        return Plan(
            prompt="",
            steps=None,
            seed=self.chosen_seed(),
            output_format=self.output_format,
            area=size.area,
            width=size.width,
            height=size.height,
        )


def check_pixels(field: str, image: InputPicture) -> None:
    """Raises PictureProblem at `field` for a picture of more than `MAX_PIXELS`."""
    if image.width * image.height > MAX_PIXELS:
        raise PictureProblem(
            field,
            f"The picture must have at most {MAX_PIXELS} pixels ({MAX_PIXELS // MEGAPIXEL} megapixels), but it has "
            f"{image.width}x{image.height} = {image.width * image.height}",
            "picture_too_large",
        )


class DeblurRequest(ToolRequest):
    """Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image": "references"}

    image: ImageInput = Field(
        repr=False,
        description=f"The picture to sharpen ({LIMITS_OF_A_SMALL_PICTURE}).",
        examples=["https://example.com/shaken.jpeg"],
    )

    def prepared(self, pictures: list[Picture]) -> list[Picture]:
        check_pixels("image", pictures[0].image)
        return pictures


MAX_UNSCALED: Final = 2 * MEGAPIXEL
SCALED: Final = MEGAPIXEL


def _person(limits: str) -> Any:
    return Field(
        repr=False,
        description=f"The person to dress ({limits}). It sets the size of the result.",
        examples=["https://example.com/person.jpeg"],
    )


def _garment(limits: str) -> Any:
    return Field(repr=False, description=f"What to put on ({limits}).", examples=["https://example.com/jacket.jpeg"])


class TryOnRequest(ToolRequest):
    """What both forms share."""

    image_fields: ClassVar[Mapping[str, Role]] = {"person": "references", "garment": "references"}

    prompt: Annotated[Text, NullIsUnset()] = Field(
        default="", description="How to wear it. May be left out.", examples=["The jacket unbuttoned"]
    )
    output_format: Annotated[PictureFormat, NullIsUnset()] = Field(
        default="jpeg", description="File format of the result.", examples=["png"]
    )

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        return replace(super().plan(references), prompt=self.prompt)


class TryOnV1Request(TryOnRequest):
    """Pictures over 2 megapixels are scaled to about one. Unknown fields are ignored."""

    person: ImageInput = _person(LIMITS_OF_A_PICTURE)
    garment: ImageInput = _garment(LIMITS_OF_A_PICTURE)

    def prepared(self, pictures: list[Picture]) -> list[Picture]:
        return [Picture(role, _bounded(image)) for role, image in pictures]


class TryOnV2Request(TryOnRequest):
    """Pictures of up to 4 megapixels are used as they are, larger ones refused. Unknown fields are ignored."""

    person: ImageInput = _person(LIMITS_OF_A_SMALL_PICTURE)
    garment: ImageInput = _garment(LIMITS_OF_A_SMALL_PICTURE)

    def prepared(self, pictures: list[Picture]) -> list[Picture]:
        for field, picture in zip(self.image_fields, pictures, strict=True):
            check_pixels(field, picture.image)
        return pictures


def _bounded(image: InputPicture) -> InputPicture:
    return scaled(image, SCALED) if image.width * image.height > MAX_UNSCALED else image
