"""The body of `POST /v1/gen-tools/erase-v1`: removes what is white in `mask`, and fills the gap from its surroundings.

Greys of the mask are taken for white from 128 of 255 on. What is white is widened first, as shadows and soft edges of
what is removed would stay otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import Field

from serve_app.media.masks import grown, mask_of, white_area
from serve_app.requests.fields import JSON_NUMBER, ImageInput, NullIsUnset
from serve_app.requests.pictures import Picture, PictureProblem, Role, check_mask_size
from serve_app.requests.tolerant import LIMITS_OF_A_PICTURE
from serve_app.requests.tools import ToolRequest

MAX_DILATION: Final = 25


class EraseRequest(ToolRequest):
    """Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image": "references", "mask": "mask"}

    image: ImageInput = Field(
        repr=False,
        description=f"The picture to remove something from ({LIMITS_OF_A_PICTURE}).",
        examples=["https://example.com/garden.png"],
    )
    mask: ImageInput = Field(
        repr=False,
        description="Black-and-white picture of the same size: white is removed, black stays as it is. Some of it must "
        "be white, and not all.",
        examples=["https://example.com/mask.png"],
    )
    dilate_pixels: Annotated[int, Field(ge=0, le=MAX_DILATION), JSON_NUMBER, NullIsUnset()] = Field(
        default=10, description="How far around the white of the mask is removed too, in pixels.", examples=[10]
    )

    def prepared(self, pictures: list[Picture]) -> list[Picture]:
        (_, image), (_, mask) = pictures
        check_mask_size(mask, image)
        white = white_area(mask)
        if not white.any():
            raise PictureProblem(
                "mask", "The mask must be white where to remove, but it is black throughout", "mask_empty"
            )
        removed = grown(white, self.dilate_pixels)
        if removed.all():
            message = "The mask must leave some of the image to fill the gap from, but it covers all of it"
            if not white.all():
                message += f" once widened by dilate_pixels = {self.dilate_pixels}"
            raise PictureProblem("mask", message, "mask_full")
        return [pictures[0], Picture("mask", mask_of(removed))]
