"""Requests of outpainting: an image extended beyond its borders.

The image lies on a canvas of `width` x `height`, its top left corner at the offset. The model paints the rest, and
the result is the canvas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias, get_args

from pydantic import ConfigDict, Field, model_validator

from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import MAX_SIDE, MIN_SIDE, Size
from serve_app.inputs.masks import place_on_canvas
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import (
    JSON_NUMBER,
    Flag,
    ImageInput,
    ImageProblem,
    NullIsUnset,
    RequestImage,
    Role,
    located_error,
)
from serve_app.schemas.tolerant import IMAGE_LIMITS
from serve_app.schemas.tools import MAX_PIXELS, ToolRequest

MAX_OFFSET: Final = 100_000
"""Pixels in either direction. No accepted image is that wide, so it refuses nothing that could work."""

Side = Annotated[int, Field(ge=MIN_SIDE, le=MAX_SIDE), JSON_NUMBER]
Offset = Annotated[int, Field(ge=-MAX_OFFSET, le=MAX_OFFSET), JSON_NUMBER]
Mode: TypeAlias = Literal["high", "fast"]


class OutpaintingRequest(ToolRequest):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")
    image_fields: ClassVar[Mapping[str, Role]] = {"input_image": "references"}
    modes: ClassVar[tuple[str, ...]] = get_args(Mode)

    input_image: ImageInput = Field(
        repr=False,
        description=f"The image to extend ({IMAGE_LIMITS}).",
        examples=["https://example.com/garden.png"],
    )
    width: Side = Field(description="Width of the result in pixels.", examples=[1280])
    height: Side = Field(
        description=f"Height of the result in pixels. `width` x `height` is at most {MAX_PIXELS}.", examples=[720]
    )
    reference_offset_x: Offset | None = Field(
        default=None,
        description="Position of the image's left edge in the result, in pixels. Centred if omitted. It can be "
        "negative with `auto_crop`.",
        examples=[128],
    )
    reference_offset_y: Offset | None = Field(
        default=None,
        description="Position of the image's top edge in the result, in pixels. Centred if omitted. It can be "
        "negative with `auto_crop`.",
        examples=[0],
    )
    auto_crop: Flag = Field(
        default=False,
        description="Cuts off what sticks out of the result, which is refused otherwise.",
        examples=[False],
    )
    mode: Annotated[Mode, NullIsUnset()] = Field(
        default="high", description="`high` for the best quality, `fast` for the shortest time.", examples=["high"]
    )

    def chosen_mode(self) -> str:
        return self.mode

    def prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        reference = images[0].image
        across = _Axis("width", "reference_offset_x", "wide", self.width, reference.width, self.reference_offset_x)
        down = _Axis("height", "reference_offset_y", "high", self.height, reference.height, self.reference_offset_y)
        for axis in (across, down):
            axis.check(auto_crop=self.auto_crop)
        if across.is_covered and down.is_covered:
            raise ImageProblem(
                "width",
                "The reference must leave some of the canvas to paint, but it covers all of it; make width more than "
                f"{across.reach} or height more than {down.reach}"
                + (", or move the reference by its offset" if self.auto_crop else ""),
                "nothing_to_paint",
            )
        canvas, mask = place_on_canvas(reference, Size(self.width, self.height), across.start, down.start)
        return [RequestImage("references", canvas), RequestImage("mask", mask)]

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        area = self.width * self.height
        return replace(super().resolve(defaults, sizes), area=area, width=self.width, height=self.height)

    @model_validator(mode="after")
    def _canvas_is_not_too_large(self) -> Self:
        if self.width * self.height > MAX_PIXELS:
            raise located_error(
                "height", "area_too_large", "width x height should be at most {most} pixels", most=MAX_PIXELS
            )
        return self


@dataclass(frozen=True, slots=True)
class _Axis:
    """Position of the reference on the canvas along one axis. Lengths are in pixels."""

    side: Literal["width", "height"]
    """Field with the canvas length."""
    offset: Literal["reference_offset_x", "reference_offset_y"]
    """Field that places the reference."""
    word: Literal["wide", "high"]
    canvas: int
    reference: int
    explicit_offset: int | None
    """Offset as sent; None centres the reference."""

    @property
    def start(self) -> int:
        """Start of the reference on the canvas. Centred by an odd difference, it has less before it than after it."""
        return (self.canvas - self.reference) // 2 if self.explicit_offset is None else self.explicit_offset

    @property
    def is_covered(self) -> bool:
        return self.start <= 0 and self.start + self.reference >= self.canvas

    @property
    def reach(self) -> int:
        """Longest canvas that the reference covers, given that it covers this one."""
        return self.reference + (self.explicit_offset or 0)

    def check(self, *, auto_crop: bool) -> None:
        """Raises ImageProblem if the reference sticks out without `auto_crop`, or lies outside altogether."""
        touches = -self.reference < self.start < self.canvas
        if 0 <= self.start <= self.canvas - self.reference or (auto_crop and touches):
            return
        lengths = f"for a reference {self.reference} {self.word}"
        if self.reference > self.canvas and not auto_crop:
            message = f"{self.side} must be at least {self.reference} {lengths}, or set auto_crop"
            raise ImageProblem(self.side, message, "reference_overflow")
        remedy = ", or set auto_crop" if touches else ""
        first, last = (1 - self.reference, self.canvas - 1) if auto_crop else (0, self.canvas - self.reference)
        raise ImageProblem(
            self.offset,
            f"{self.offset} must be between {first} and {last} {lengths} on a canvas {self.canvas} {self.word}{remedy}",
            "reference_overflow" if touches else "reference_outside",
        )
