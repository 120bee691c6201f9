"""The body of `POST /v1/gen-tools/deblur-v1`: sharpens a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from serve_app.requests.fields import ImageInput
from serve_app.requests.pictures import Picture, Role
from serve_app.requests.tools import LIMITS_OF_A_SMALL_PICTURE, ToolRequest, check_pixels


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
