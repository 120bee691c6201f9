"""The body of `POST /v1/gen-pro`: text to image, with a picture as part of the prompt if one is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

from pydantic import Field

from serve_app.requests.fields import JSON_NUMBER, JSON_REAL, ImageInput, NullIsUnset, Text
from serve_app.requests.pictures import Role
from serve_app.requests.plan import Plan
from serve_app.requests.tolerant import LIMITS_OF_A_PICTURE, UpsamplingRequest

MIN_SIDE: Final = 256
MAX_SIDE: Final = 1440
GRID: Final = 32

Side = Annotated[int, Field(ge=MIN_SIDE, le=MAX_SIDE, multiple_of=GRID), JSON_NUMBER, NullIsUnset()]


class ProRequest(UpsamplingRequest):
    """Width and height have defaults of their own, so either may be sent alone. Unknown fields are ignored."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image_prompt": "image_prompt"}

    prompt: Annotated[Text, NullIsUnset()] = Field(
        default="", description="What the picture shows.", examples=["A lighthouse on a cliff at dawn"]
    )
    image_prompt: ImageInput | None = Field(
        default=None,
        repr=False,
        description=f"A picture to work from as from a prompt ({LIMITS_OF_A_PICTURE}).",
        examples=["https://example.com/garden.jpeg"],
    )
    width: Side = Field(default=1024, description="Width in pixels, a multiple of 32.", examples=[1024])
    height: Side = Field(default=768, description="Height in pixels, a multiple of 32.", examples=[768])
    steps: Annotated[int, Field(ge=1, le=50), JSON_NUMBER, NullIsUnset()] = Field(
        default=40, description="Denoising steps. Fewer are faster and coarser.", examples=[40]
    )
    guidance: Annotated[float, Field(ge=1.5, le=5, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=2.5, description="Higher keeps closer to the prompt, at the cost of realism.", examples=[2.5]
    )
    interval: Annotated[float, Field(ge=1, le=4, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=2, description="Guidance is applied at every n-th step.", examples=[2]
    )

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        return Plan(
            prompt=self.prompt,
            steps=self.steps,
            seed=self.chosen_seed(),
            output_format=self.output_format,
            area=self.width * self.height,
            width=self.width,
            height=self.height,
            guidance=self.guidance,
            guidance_interval=self.interval,
            rewrite=self.prompt_upsampling,
        )
