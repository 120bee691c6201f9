"""`POST /v1/<endpoint>`: HTTP around `submission.accept`.

An endpoint that the catalog gives to other regions only is a 404 here, which names the addresses that serve it. Tasks
have no region: every address answers for every task that its store knows.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Request, Response
from pydantic import BaseModel

from serve_app.config.catalog import Catalog, Endpoint
from serve_app.config.settings import Settings
from serve_app.http import refusals
from serve_app.http.auth import Generator
from serve_app.http.json_route import FilesRoute
from serve_app.http.origin import public_base
from serve_app.http.regions import elsewhere
from serve_app.http.routes.schemas import Submission, errors
from serve_app.http.services import Deps
from serve_app.requests import GenerationRequest
from serve_app.requests.examples import examples
from serve_app.submission.accept import accept
from serve_app.submission.offer import Offer
from serve_app.tasks.limits import Refused

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]


def offers(catalog: Catalog, settings: Settings) -> dict[str, Offer]:
    """What is served here, by path."""
    return {
        f"/v1/{name}": Offer(name, endpoint, catalog.recipes(endpoint, settings))
        for name, endpoint in catalog.served.items()
        if not elsewhere(name, endpoint, settings.service)
    }


def router(catalog: Catalog, settings: Settings, offers: Mapping[str, Offer]) -> APIRouter:
    """One route per endpoint of the catalog."""
    routes = APIRouter(tags=["generate"], route_class=FilesRoute)
    for name, endpoint in catalog.served.items():
        path = f"/v1/{name}"
        if message := elsewhere(name, endpoint, settings.service):
            routes.add_api_route(path, _refusing(message), methods=["POST"], include_in_schema=False)
            continue
        routes.add_api_route(
            path,
            _handler(offers[path]),
            methods=["POST"],
            response_model=Submission,
            response_model_exclude_unset=True,
            summary=endpoint.summary or name,
            operation_id=name,
            deprecated=endpoint.deprecated is not None or None,
            openapi_extra=_to_try(endpoint),
            responses=errors(*((400,) if endpoint.takes_finetunes else ()), 402, 403, 413, 429, 503),
        )
    return routes


def _to_try(endpoint: Endpoint) -> dict[str, Any]:
    """Bodies for the description, which it offers to send."""
    bodies = examples(endpoint.request, tuned=endpoint.takes_finetunes)
    shown = {name: {"value": body} for name, body in bodies.items()}
    return {"requestBody": {"content": {"application/json": {"examples": shown}}}}


def _refusing(message: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise HTTPException(404, message)

    return refuse


def _handler(offer: Offer) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def submit(
        body: BaseModel,
        request: Request,
        response: Response,
        services: Deps,
        caller: Generator,
        idempotency_key: IdempotencyKey = None,
    ) -> dict[str, Any]:
        assert isinstance(body, GenerationRequest)
        base = public_base(request, services.settings.service)
        limits = services.tasks.limits
        try:
            accepted = await accept(
                services.submission, caller, offer, body, base=base, idempotency_key=idempotency_key or ""
            )
        except Refused as refusal:
            raise refusals.answer(refusal, offer.name, limits) from None
        if accepted.requests_left is not None:
            response.headers.update(refusals.rate_limit(limits, accepted.requests_left))
        return json.loads(accepted.reply)

    # The real type, for validation and for the API's description.
    submit.__annotations__["body"] = offer.endpoint.request_type
    return submit
