"""Which endpoint a request means: by `model`, or the one that does such things where none is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.http.middleware import FAMILY, real
from serve_app.http.regions import elsewhere
from serve_app.http.routes.openai.errors import Refusal
from serve_app.requests.video import ClipRequest
from serve_app.submission.dependencies import Offer

Fits: TypeAlias = Callable[[Offer], bool]


class Offered:
    """What is served here, by the names that `model` may have."""

    def __init__(self, offers: Mapping[str, Offer], catalog: Catalog, settings: Settings) -> None:
        """`offers` by path. Raises ValueError where the settings name what does not fit."""
        self._offers = {path.removeprefix("/v1/"): offer for path, offer in offers.items()}
        self._catalog = catalog
        self._service = settings.service
        self._preferred = [
            self._set("image_model", settings.openai.image_model, makes_pictures),
            self._set("video_model", settings.openai.video_model, makes_videos),
        ]

    def chosen(self, model: str | None, fits: Fits, doing: str) -> Offer:
        """Raises Refusal for a model that is not here, or can't do it; `doing` goes on from "does not"."""
        if model is not None:
            offer = self.named(model)
            if not fits(offer):
                others = ", ".join(each.name for each in self.all() if fits(each))
                raise Refusal(
                    400, f"{offer.name} does not {doing}: use one of {others}", "invalid_value", param="model"
                )
            return offer
        for offer in (*self._preferred, *self.all()):
            if offer is not None and fits(offer):
                return offer
        raise Refusal(400, f"No model here can {doing}", "model_not_found", param="model")

    def named(self, model: str) -> Offer:
        """Raises Refusal."""
        name = real(f"/v1/{model}", self._service.path_aliases).removeprefix("/v1/")
        for tried in (name, f"{FAMILY}-{name}"):
            if offer := self._offers.get(tried):
                return offer
            own = self._catalog.names.get(tried)
            if own and (message := elsewhere(own, self._catalog.served[own], self._service)):
                raise _unknown(message)
        raise _unknown(f"No such model: {model}; GET /v1/models lists those that there are")

    def all(self) -> Iterator[Offer]:
        """Each once, in the order of the catalog."""
        return (offer for name, offer in self._offers.items() if name == offer.name)

    def _set(self, key: str, name: str | None, fits: Fits) -> Offer | None:
        offer = None if name is None else self._offers.get(name)
        if name is not None and (offer is None or not fits(offer)):
            raise ValueError(f"openai.{key}: {name} is no endpoint here that fits")
        return offer


def makes_pictures(offer: Offer) -> bool:
    """From a prompt alone."""
    form = offer.endpoint.request_type
    needed = {name for name, field in form.model_fields.items() if field.is_required()}
    return "prompt" in form.model_fields and not makes_videos(offer) and not needed & set(form.image_fields)


def edits_pictures(offer: Offer) -> bool:
    form = offer.endpoint.request_type
    return "prompt" in form.model_fields and "references" in form.image_fields.values()


def paints_masked(offer: Offer) -> bool:
    return edits_pictures(offer) and "mask" in offer.endpoint.request_type.image_fields


def makes_videos(offer: Offer) -> bool:
    return issubclass(offer.endpoint.request_type, ClipRequest)


def _unknown(message: str) -> Refusal:
    return Refusal(404, message, "model_not_found", param="model")
