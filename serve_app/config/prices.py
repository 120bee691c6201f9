"""Prices of endpoints."""

from __future__ import annotations

from pydantic import Field

from deployments.contract.strict_settings import StrictSettings
from serve_app.inputs.geometry import billed_megapixels


class EndpointPrice(StrictSettings):
    """Price of a request in credits."""

    first: float = Field(ge=0)
    """First megapixel of output."""
    out: float = Field(default=0, ge=0)
    """Each further megapixel of output."""
    input: float = Field(default=0, ge=0)
    """Each megapixel of input."""
    per_second: bool = False
    """Multiply the price of the output by its seconds."""

    def millicredits(self, output_pixels: int, input_pixels: int, seconds: int = 1) -> int:
        """Returns `1000 * ((first + max(0, out_mp - 1) * out) * seconds + in_mp * input)`, rounded.

        Megapixels are 2^20 pixels, rounded up. `seconds` counts with `per_second` only.
        """
        out_mp, in_mp = billed_megapixels(output_pixels), billed_megapixels(input_pixels)
        output = self.first + max(0, out_mp - 1) * self.out
        return round(1000 * (output * (seconds if self.per_second else 1) + in_mp * self.input))

    @property
    def minimum(self) -> int:
        """Lowest price of a request, milli-credits."""
        return self.millicredits(output_pixels=0, input_pixels=0)
