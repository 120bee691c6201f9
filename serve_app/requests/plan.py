"""What a valid request asks for, decided as far as submission can decide it."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.contract.job import OutputFormat
from serve_app.media.geometry import MEGAPIXEL


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes in pixels. Without `width` and `height` the ratio is chosen later, on a canvas of `area` pixels."""

    prompt: str
    steps: int
    seed: int
    output_format: OutputFormat
    area: int
    width: int | None = None
    height: int | None = None
    input_pixels: int = 0

    @property
    def work(self) -> float:
        """Compute units for fair sharing: megapixel-steps, references counted like output."""
        return (self.area + self.input_pixels) / MEGAPIXEL * self.steps
