"""The catalog: which endpoint there is, what it takes and costs, and which model serves it."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import Field, model_validator

from serve_app.media.geometry import billed_megapixels
from serve_app.requests import REQUESTS, GenerationRequest
from serve_app.settings import Section, Settings


class Price(Section):
    """Credits. `first` covers the first megapixel of output, `out` each further one, `input` each one of input."""

    first: float = Field(ge=0)
    out: float = Field(default=0, ge=0)
    input: float = Field(default=0, ge=0)

    def millicredits(self, output_pixels: int, input_pixels: int) -> int:
        """`first + max(0, out_mp - 1) * out + in_mp * input`, megapixels (2^20 pixels) rounded up to whole ones."""
        out_mp, in_mp = billed_megapixels(output_pixels), billed_megapixels(input_pixels)
        return round(1000 * (self.first + max(0, out_mp - 1) * self.out + in_mp * self.input))


class Safety(Section):
    default: int = Field(default=2, ge=0)
    approved: int = Field(ge=0)
    """The highest tolerance that may be asked for."""


class Endpoint(Section):
    model: str
    """The lane: the model deployment that does the work."""
    request: str
    price: Price
    safety: Safety
    quotes_price: bool = True
    """Whether the submission reply carries numbers for `cost`, `input_mp` and `output_mp`."""
    summary: str = ""

    @property
    def request_type(self) -> type[GenerationRequest]:
        return REQUESTS[self.request]

    @model_validator(mode="after")
    def _known_request(self) -> Endpoint:
        if self.request not in REQUESTS:
            raise ValueError(f"request must be one of {sorted(REQUESTS)}")
        return self


class Model(Section):
    checkpoint: str
    """Hub id, folder, or `bundled/<name>`; a profile may override it."""
    revision: str | None = None


class Catalog(Section):
    endpoints: dict[str, Endpoint]
    models: dict[str, Model]

    @model_validator(mode="after")
    def _models_exist(self) -> Catalog:
        for name, endpoint in self.endpoints.items():
            if endpoint.model not in self.models:
                raise ValueError(f"endpoints.{name}.model: there is no model {endpoint.model!r}")
        return self


def load(settings: Settings) -> Catalog:
    """Raises FileNotFoundError, or ValueError naming the key at fault."""
    path: Path = settings.catalog
    if not path.is_file():
        raise FileNotFoundError(f"no such catalog: {path}")
    catalog = Catalog.model_validate(yaml.safe_load(path.read_text()))
    unknown = set(settings.models) - set(catalog.models)
    if unknown:
        raise ValueError(f"models {sorted(unknown)} are configured but not in the catalog")
    return catalog
