"""The body of `POST /v1/gen-pro-1.0-fill`: paints part of a picture anew.

The part is white in `mask`; without a mask, it is what the picture's alpha channel makes transparent (half transparent:
half repainted). With both, the mask counts. A picture with neither, or whose alpha channel is opaque everywhere, is
refused at `mask`. The result has the picture's own size, held to the service's limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from serve_app.media.geometry import fit
from serve_app.media.masks import WHITE_FROM, alpha_mask, grey_mask, white_area
from serve_app.requests.fields import JSON_NUMBER, JSON_REAL, ImageInput, NullIsUnset, Text
from serve_app.requests.pictures import Picture, PictureProblem, Role, check_mask_size
from serve_app.requests.plan import Plan
from serve_app.requests.tolerant import LIMITS_OF_A_PICTURE, UpsamplingRequest


class FillRequest(UpsamplingRequest):
    """`input_image` is taken for `image`, where only that is sent; other unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image": "references", "mask": "mask"}

    other_names: ClassVar[frozenset[str]] = frozenset(("input_image",))

    image: ImageInput = Field(
        repr=False,
        description=f"The picture to change ({LIMITS_OF_A_PICTURE}). Transparent parts are repainted when there is no "
        "`mask`.",
        examples=["https://example.com/garden.png"],
    )
    mask: ImageInput | None = Field(
        default=None,
        repr=False,
        description="Black-and-white picture of the same size: white is painted anew, black stays as it is. Needed "
        "unless the picture has transparent parts.",
        examples=["https://example.com/mask.png"],
    )
    prompt: Annotated[Text, NullIsUnset()] = Field(
        default="", description="What to paint there.", examples=["A wooden bench"]
    )
    steps: Annotated[int, Field(ge=15, le=50), JSON_NUMBER, NullIsUnset()] = Field(
        default=50, description="Denoising steps. Fewer are faster and coarser.", examples=[50]
    )
    guidance: Annotated[float, Field(ge=1.5, le=100, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=60, description="Higher keeps closer to the prompt, at the cost of realism.", examples=[60]
    )

    def prepared(self, pictures: list[Picture]) -> list[Picture]:
        image = pictures[0].image
        mask = grey_mask(pictures[1].image) if len(pictures) > 1 else alpha_mask(image)
        if mask is None:
            raise PictureProblem("mask", "Field required, as the image has no transparent parts", "missing")
        check_mask_size(mask, image)
        if not white_area(mask).any():
            raise PictureProblem(
                "mask",
                f"The mask must be white ({WHITE_FROM} to 255) where to paint anew, but it is darker everywhere. Scale "
                "masks of 0 and 1 by 255. To paint what is transparent, send an image with transparency and no mask",
                "mask_empty",
            )
        return [pictures[0], Picture("mask", mask)]

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        size = fit(*references[0])
        return Plan(
            prompt=self.prompt,
            steps=self.steps,
            seed=self.chosen_seed(),
            output_format=self.output_format,
            area=size.area,
            width=size.width,
            height=size.height,
            guidance=self.guidance,
            rewrite=self.prompt_upsampling,
        )

    @model_validator(mode="before")
    @classmethod
    def _takes_the_other_name(cls, body: Any) -> Any:
        if isinstance(body, dict) and body.get("image") is None and body.get("input_image") is not None:
            return body | {"image": body["input_image"]}
        return body
