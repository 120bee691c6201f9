"""What the tools share: endpoints that do one thing to a picture, most of them without a prompt.

The result has the first picture's own size, held to the service's limits, where a
tool does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

from pydantic import Field

from serve_app.media.decoding import InputPicture
from serve_app.media.geometry import MEGAPIXEL, fit
from serve_app.requests.fields import ImageInput, NullIsUnset, PictureFormat
from serve_app.requests.pictures import Picture, PictureProblem, Role
from serve_app.requests.plan import Plan
from serve_app.requests.tolerant import TolerantRequest

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
