"""Requests of Fill, Canny and Erase: a part of an image repainted or removed, or an image from edges.

The part is white in `mask`; without a mask, it is what the image's alpha channel makes transparent (half transparent:
half repainted). With both, the mask counts. An image with neither, or whose alpha channel is opaque everywhere, is
refused at `mask`. The result has the image's own size, held to the service's limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import fit
from serve_app.inputs.masks import WHITE_FROM, alpha_mask, grey_mask, grow, mask_from_area, white_area
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import (
    JSON_NUMBER,
    JSON_REAL,
    ImageField,
    ImageInput,
    ImageProblem,
    NullIsUnset,
    Prompt,
    RequestImage,
    Role,
    Text,
    check_mask_size,
    located_error,
)
from serve_app.schemas.tolerant import IMAGE_LIMITS, UpsamplingRequest
from serve_app.schemas.tools import ToolRequest


class FillRequest(UpsamplingRequest):
    """`input_image` is taken for `image`, where only that is sent; other unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image": "references", "mask": "mask"}

    other_names: ClassVar[frozenset[str]] = frozenset(("input_image",))

    image: ImageInput = Field(
        repr=False,
        description=f"The image to change ({IMAGE_LIMITS}). Transparent parts are repainted when there is no `mask`.",
        examples=["https://example.com/garden.png"],
    )
    mask: ImageInput | None = Field(
        default=None,
        repr=False,
        description="Black-and-white image of the same size: white is painted anew, black stays as it is. Needed "
        "unless the image has transparent parts.",
        examples=["https://example.com/mask.png"],
    )
    prompt: Annotated[Text, NullIsUnset()] = Field(
        default="", description="Content of the masked area.", examples=["A wooden bench"]
    )
    steps: Annotated[int, Field(ge=15, le=50), JSON_NUMBER, NullIsUnset()] = Field(
        default=50, description="Denoising steps. Fewer are faster and coarser.", examples=[50]
    )
    guidance: Annotated[float, Field(ge=1.5, le=100, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=60, description="Higher keeps closer to the prompt, at the cost of realism.", examples=[60]
    )

    def prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        image = images[0].image
        mask = grey_mask(images[1].image) if len(images) > 1 else alpha_mask(image)
        if mask is None:
            raise ImageProblem("mask", "Field required, as the image has no transparent parts", "missing")
        check_mask_size(mask, image)
        if not white_area(mask).any():
            raise ImageProblem(
                "mask",
                f"The mask must be white ({WHITE_FROM} to 255) where to paint anew, but it is darker everywhere. Scale "
                "masks of 0 and 1 by 255. To paint what is transparent, send an image with transparency and no mask",
                "mask_empty",
            )
        return [images[0], RequestImage("mask", mask)]

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        resolved = defaults.resolve(
            prompt=self.prompt,
            seed=self.seed_or_random(),
            output_format=self.output_format,
            size=fit(*sizes[0]),
            steps=self.steps,
            guidance=self.guidance,
        )
        return replace(resolved, rewrite=self.prompt_upsampling)

    @model_validator(mode="before")
    @classmethod
    def _takes_the_other_name(cls, body: Any) -> Any:
        if isinstance(body, dict) and body.get("image") is None and body.get("input_image") is not None:
            return body | {"image": body["input_image"]}
        return body


Threshold = Annotated[int, Field(ge=0, le=500), JSON_NUMBER, NullIsUnset()]


class EdgesRequest(UpsamplingRequest):
    """Base of the Canny requests."""

    prompt: Prompt = Field(description="Content of the image.", examples=["A marble statue of a cat"])
    canny_low_threshold: Threshold = Field(default=50, description="Weaker edges than this are dropped.", examples=[50])
    canny_high_threshold: Threshold = Field(
        default=200,
        description="Stronger edges than this are kept; those between are kept where they touch one.",
        examples=[200],
    )
    steps: Annotated[int, Field(ge=15, le=50), JSON_NUMBER, NullIsUnset()] = Field(
        default=50, description="Denoising steps. Fewer are faster and coarser.", examples=[50]
    )
    guidance: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=30, description="Higher keeps closer to the prompt, at the cost of realism.", examples=[30]
    )

    @property
    def shows_edges(self) -> bool:
        """True if the image shows edges already."""
        return False

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        low, high = sorted((self.canny_low_threshold, self.canny_high_threshold))
        resolved = defaults.resolve(
            prompt=self.prompt,
            seed=self.seed_or_random(),
            output_format=self.output_format,
            size=fit(*sizes[0]),
            steps=self.steps,
            guidance=self.guidance,
        )
        return replace(resolved, canny=None if self.shows_edges else (low, high), rewrite=self.prompt_upsampling)


class CannyRequest(EdgesRequest):
    """One of the two images is needed. Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"preprocessed_image": "control", "control_image": "control"}

    control_image: ImageInput | None = Field(
        default=None,
        repr=False,
        description=f"The image to take the edges from ({IMAGE_LIMITS}). Needed unless `preprocessed_image` is sent.",
        examples=["https://example.com/cat.jpeg"],
    )
    preprocessed_image: ImageInput | None = Field(
        default=None,
        repr=False,
        description="An image of edges, white on black, used as it is; `control_image` and the thresholds then don't "
        "matter.",
        examples=["https://example.com/edges.png"],
    )

    @property
    def shows_edges(self) -> bool:
        return self.preprocessed_image is not None

    def image_inputs(self) -> list[ImageField]:
        return super().image_inputs()[:1]

    @model_validator(mode="after")
    def _has_an_image(self) -> Self:
        if self.control_image is None and self.preprocessed_image is None:
            raise located_error("control_image", "missing", "Field required, unless preprocessed_image is sent")
        return self


class ControlCannyRequest(EdgesRequest):
    """The form of the tuned variant: always from an image, never from its edges."""

    image_fields: ClassVar[Mapping[str, Role]] = {"control_image": "control"}

    control_image: ImageInput = Field(
        repr=False,
        description=f"The image to take the edges from ({IMAGE_LIMITS}).",
        examples=["https://example.com/cat.jpeg"],
    )


MAX_DILATION: Final = 25


class EraseRequest(ToolRequest):
    """Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image": "references", "mask": "mask"}

    image: ImageInput = Field(
        repr=False,
        description=f"The image to remove something from ({IMAGE_LIMITS}).",
        examples=["https://example.com/garden.png"],
    )
    mask: ImageInput = Field(
        repr=False,
        description="Black-and-white image of the same size: white is removed, black stays as it is. Some of it must "
        "be white, and not all.",
        examples=["https://example.com/mask.png"],
    )
    dilate_pixels: Annotated[int, Field(ge=0, le=MAX_DILATION), JSON_NUMBER, NullIsUnset()] = Field(
        default=10, description="Margin around the white of the mask that is also removed, in pixels.", examples=[10]
    )

    def prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        image, mask = (each.image for each in images)
        check_mask_size(mask, image)
        white = white_area(mask)
        if not white.any():
            raise ImageProblem(
                "mask", "The mask must be white where to remove, but it is black throughout", "mask_empty"
            )
        area = grow(white, self.dilate_pixels)
        if area.all():
            message = "The mask must leave some of the image to fill the gap from, but it covers all of it"
            if not white.all():
                message += f" once widened by dilate_pixels = {self.dilate_pixels}"
            raise ImageProblem("mask", message, "mask_full")
        return [images[0], RequestImage("mask", mask_from_area(area))]
