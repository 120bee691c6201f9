"""The body of `POST /v1/gen-pro-1.0-canny`: a picture whose edges are those of another.

`preprocessed_image` shows edges already and wins over `control_image`, which then is not even fetched. Thresholds in
the wrong order are swapped, as edge detectors do. The result has the size of the picture used, held to the service's
limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from serve_app.media.geometry import fit
from serve_app.requests.fields import JSON_NUMBER, JSON_REAL, ImageInput, NullIsUnset, Prompt, located_error
from serve_app.requests.pictures import Role, SentPicture
from serve_app.requests.plan import Plan
from serve_app.requests.tolerant import LIMITS_OF_A_PICTURE, UpsamplingRequest

Threshold = Annotated[int, Field(ge=0, le=500), JSON_NUMBER, NullIsUnset()]


class EdgesRequest(UpsamplingRequest):
    """What both forms share."""

    prompt: Prompt = Field(description="What the picture shows.", examples=["A marble statue of a cat"])
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
        """Whether the picture shows edges already."""
        return False

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        size = fit(*references[0])
        low, high = sorted((self.canny_low_threshold, self.canny_high_threshold))
        return Plan(
            prompt=self.prompt,
            steps=self.steps,
            seed=self.chosen_seed(),
            output_format=self.output_format,
            area=size.area,
            width=size.width,
            height=size.height,
            guidance=self.guidance,
            canny=None if self.shows_edges else (low, high),
            rewrite=self.prompt_upsampling,
        )


class CannyRequest(EdgesRequest):
    """One of the two pictures is needed. Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"preprocessed_image": "control", "control_image": "control"}

    control_image: ImageInput | None = Field(
        default=None,
        repr=False,
        description=f"The picture to take the edges from ({LIMITS_OF_A_PICTURE}). Needed unless `preprocessed_image` "
        "is sent.",
        examples=["https://example.com/cat.jpeg"],
    )
    preprocessed_image: ImageInput | None = Field(
        default=None,
        repr=False,
        description="A picture of edges, white on black, used as it is; `control_image` and the thresholds then don't "
        "matter.",
        examples=["https://example.com/edges.png"],
    )

    @property
    def shows_edges(self) -> bool:
        return self.preprocessed_image is not None

    def image_inputs(self) -> list[SentPicture]:
        return super().image_inputs()[:1]

    @model_validator(mode="after")
    def _has_a_picture(self) -> Self:
        if self.control_image is None and self.preprocessed_image is None:
            raise located_error("control_image", "missing", "Field required, unless preprocessed_image is sent")
        return self


class ControlCannyRequest(EdgesRequest):
    """The form of the tuned variant: always from a picture, never from its edges."""

    image_fields: ClassVar[Mapping[str, Role]] = {"control_image": "control"}

    control_image: ImageInput = Field(
        repr=False,
        description=f"The picture to take the edges from ({LIMITS_OF_A_PICTURE}).",
        examples=["https://example.com/cat.jpeg"],
    )
