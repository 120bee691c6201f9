"""An endpoint of the catalog: what it takes, costs and lets pass, and which models do its work."""

from __future__ import annotations

from datetime import date

from pydantic import Field, model_validator

from serve_app.media.geometry import billed_megapixels
from serve_app.moderation.settings import Category, Level
from serve_app.requests import REQUESTS, GenerationRequest
from serve_app.requests.tolerant import finetuned
from serve_app.section import Section


class Price(Section):
    """Credits. `first` covers the first megapixel of output, `out` each further one, `input` each one of input.

    `per_second` makes the price of output that of one second of it.
    """

    first: float = Field(ge=0)
    out: float = Field(default=0, ge=0)
    input: float = Field(default=0, ge=0)
    per_second: bool = False

    def millicredits(self, output_pixels: int, input_pixels: int, seconds: int = 1) -> int:
        """`first + max(0, out_mp - 1) * out + in_mp * input`, megapixels (2^20 pixels) rounded up to whole ones.

        The first two times `seconds`, where the price is one of a second.
        """
        out_mp, in_mp = billed_megapixels(output_pixels), billed_megapixels(input_pixels)
        output = self.first + max(0, out_mp - 1) * self.out
        return round(1000 * (output * (seconds if self.per_second else 1) + in_mp * self.input))

    @property
    def least(self) -> int:
        """What nothing costs less than, milli-credits."""
        return self.millicredits(output_pixels=0, input_pixels=0)


class Safety(Section):
    default: int = Field(default=2, ge=0)
    approved: int = Field(ge=0)
    """The highest tolerance that may be asked for."""
    ceilings: dict[Category, Level] = {}
    """By category, the highest tolerance that counts on this endpoint."""


class Deprecated(Section):
    since: date
    sunset: date | None = None
    """The day it stops answering; None while that is not decided."""
    successors: tuple[str, ...] = ()
    """Endpoints to go to instead, by name."""

    @model_validator(mode="after")
    def _in_order(self) -> Deprecated:
        if self.sunset is not None and self.sunset < self.since:
            raise ValueError("sunset must not be before since")
        return self


class Finetuned(Section):
    """What `<name>-finetuned` has of its own; the rest is as on the base endpoint."""

    request: str | None = None
    deprecated: Deprecated | None = None
    regions: tuple[str, ...] | None = None


class OtherName(Section):
    """A further name of an endpoint: requests to it are requests to the endpoint."""

    deprecated: Deprecated | None = None


class Mode(Section):
    """One of several ways of doing an endpoint's work; what it leaves out is as on the endpoint."""

    model: str | None = None
    steps: int | None = Field(default=None, ge=1)
    guidance: float | None = None
    price: Price | None = None


class Endpoint(Section):
    model: str
    """The lane: the model deployment that does the work."""
    request: str
    price: Price
    safety: Safety
    quotes_price: bool = True
    """Whether the submission reply carries numbers for `cost`, `input_mp` and `output_mp`."""
    summary: str = ""
    instruction: str = ""
    """What every prompt begins with, for endpoints that do one thing."""
    modes: dict[str, Mode] = {}
    """By the names that requests have for them."""
    deprecated: Deprecated | None = None
    other_names: dict[str, OtherName] = {}
    regions: tuple[str, ...] = ()
    """Regions that serve it, by the names in `service.regions`; empty: all of them."""

    finetuned: Finetuned | None = None
    """Makes `<name>-finetuned`, which takes tuned models (LoRA) of this endpoint's model."""
    takes_finetunes: bool = Field(default=False, exclude=True)
    """Whether this is such an endpoint; never set in a file."""

    @property
    def request_type(self) -> type[GenerationRequest]:
        form = REQUESTS[self.request]
        return finetuned(form) if self.takes_finetunes else form

    @property
    def highest_tolerance(self) -> int:
        """Of safety, that requests of this form can name: more can't be approved."""
        return self.request_type.highest_tolerance()

    @property
    def models(self) -> set[str]:
        """All that its requests may need."""
        return {self.model} | {mode.model for mode in self.modes.values() if mode.model is not None}

    @property
    def ways(self) -> dict[str, Mode]:
        """Its modes, or the only way there is, under the empty name."""
        return self.modes or {"": Mode()}

    def price_of(self, mode: str) -> Price:
        own = self.modes[mode].price if mode else None
        return own or self.price

    def finetuned_variant(self) -> Endpoint | None:
        if self.finetuned is None:
            return None
        own = self.finetuned
        changes = {
            "takes_finetunes": True,
            "finetuned": None,
            "other_names": {},
            "request": own.request or self.request,
            "deprecated": own.deprecated,
            "regions": self.regions if own.regions is None else own.regions,
            "summary": f"{self.summary} · with a tuned model",
        }
        return self.model_copy(update=changes)

    @model_validator(mode="after")
    def _known_request(self) -> Endpoint:
        own = self.finetuned.request if self.finetuned else None
        if self.request not in REQUESTS or (own is not None and own not in REQUESTS):
            raise ValueError(f"request must be one of {sorted(REQUESTS)}")
        if self.safety.approved > self.highest_tolerance:
            raise ValueError(f"safety.approved must be at most {self.highest_tolerance}, which requests can name")
        form = REQUESTS[self.request]
        if set(form.modes) != set(self.modes):
            raise ValueError(f"modes must be {sorted(form.modes)}, between which requests of this form choose")
        if self.finetuned is not None and not form.finetunable:
            raise ValueError("finetuned: requests of this form take no tuned models")
        return self
