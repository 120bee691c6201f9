"""The bodies of `POST /v1/gen-tools/vto-v1` and `vto-v2`: a person in another garment.

The result has the size of the person's picture as the model gets it, held to the service's limits. The two differ in
what they do with large pictures: `vto-v1` scales them down, `vto-v2` takes larger ones as they are and refuses what is
larger still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from serve_app.media.canvas import scaled
from serve_app.media.decoding import InputPicture
from serve_app.media.geometry import MEGAPIXEL
from serve_app.requests.fields import ImageInput, NullIsUnset, PictureFormat, Text
from serve_app.requests.pictures import Picture, Role
from serve_app.requests.plan import Plan
from serve_app.requests.tolerant import LIMITS_OF_A_PICTURE
from serve_app.requests.tools import LIMITS_OF_A_SMALL_PICTURE, ToolRequest, check_pixels

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
