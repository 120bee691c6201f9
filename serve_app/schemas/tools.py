"""Requests of tools: deblur and try-on, and their base.

Unless a tool says otherwise, the result has the first image's own size, held to the service's limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import MEGAPIXEL, fit
from serve_app.inputs.images import InputImage
from serve_app.inputs.masks import scale
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import ImageFormat, ImageInput, ImageProblem, NullIsUnset, RequestImage, Role, Text
from serve_app.schemas.tolerant import IMAGE_LIMITS, TolerantRequest

MAX_PIXELS: Final = 4 * MEGAPIXEL
"""Maximum pixels of images that some tools take, and of outpainting's results."""

SMALL_IMAGE_LIMITS: Final = (
    "JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 4 megapixels; turned upright"
)


class ToolRequest(TolerantRequest):
    output_format: Annotated[ImageFormat, NullIsUnset()] = Field(
        default="png", description="File format of the result.", examples=["png"]
    )

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        return defaults.resolve(
            prompt=self.tool_prompt(), seed=self.seed_or_random(), output_format=self.output_format, size=fit(*sizes[0])
        )

    def tool_prompt(self) -> str:
        """Returns the prompt of a tool that takes one."""
        return ""


def check_pixels(field: str, image: InputImage) -> None:
    """Raises ImageProblem at `field` for an image of more than MAX_PIXELS."""
    if image.width * image.height > MAX_PIXELS:
        raise ImageProblem(
            field,
            f"The image must have at most {MAX_PIXELS} pixels ({MAX_PIXELS // MEGAPIXEL} megapixels), but it has "
            f"{image.width}x{image.height} = {image.width * image.height}",
            "image_too_large",
        )


class DeblurRequest(ToolRequest):
    """Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image": "references"}

    image: ImageInput = Field(
        repr=False,
        description=f"The image to sharpen ({SMALL_IMAGE_LIMITS}).",
        examples=["https://example.com/shaken.jpeg"],
    )

    def prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        check_pixels("image", images[0].image)
        return images


MAX_UNSCALED: Final = 2 * MEGAPIXEL
TARGET_AREA: Final = MEGAPIXEL


def _person(limits: str) -> Any:
    return Field(
        repr=False,
        description=f"The person to dress ({limits}). It sets the size of the result.",
        examples=["https://example.com/person.jpeg"],
    )


def _garment(limits: str) -> Any:
    return Field(repr=False, description=f"The garment ({limits}).", examples=["https://example.com/jacket.jpeg"])


class TryOnRequest(ToolRequest):
    """Base of the try-on requests."""

    image_fields: ClassVar[Mapping[str, Role]] = {"person": "references", "garment": "references"}

    prompt: Annotated[Text, NullIsUnset()] = Field(
        default="", description="Styling of the garment. Optional.", examples=["The jacket unbuttoned"]
    )
    output_format: Annotated[ImageFormat, NullIsUnset()] = Field(
        default="jpeg", description="File format of the result.", examples=["png"]
    )

    def tool_prompt(self) -> str:
        return self.prompt


class TryOnV1Request(TryOnRequest):
    """Images over 2 megapixels are scaled to about one. Unknown fields are ignored."""

    person: ImageInput = _person(IMAGE_LIMITS)
    garment: ImageInput = _garment(IMAGE_LIMITS)

    def prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        return [each._replace(image=_limit_area(each.image)) for each in images]


class TryOnV2Request(TryOnRequest):
    """Images of up to 4 megapixels are used as they are, larger ones refused. Unknown fields are ignored."""

    person: ImageInput = _person(SMALL_IMAGE_LIMITS)
    garment: ImageInput = _garment(SMALL_IMAGE_LIMITS)

    def prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        for field, image in zip(self.image_fields, images, strict=True):
            check_pixels(field, image.image)
        return images


def _limit_area(image: InputImage) -> InputImage:
    return scale(image, TARGET_AREA) if image.width * image.height > MAX_UNSCALED else image
