"""The routes `POST /v1/<endpoint>`: submission under every name of an endpoint.

An endpoint of other regions responds 404 with the addresses that serve it; a withdrawn endpoint responds 410. Tasks
have no region: every address serves every task of its store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Request, Response
from pydantic import BaseModel

from serve_app.accounts.api_key_auth import Caller
from serve_app.api.auth import Generator
from serve_app.api.bodies import FilesRoute
from serve_app.api.hosts import public_base
from serve_app.api.openapi import camel_case
from serve_app.api.routes.schemas import (
    ErrorResponse,
    Submission,
    errors,
    other_regions_message,
    rate_limit_headers,
    rejection_error,
)
from serve_app.api.services import Deps, Services
from serve_app.config.catalog import Catalog, Endpoint, Withdrawn
from serve_app.config.settings import Settings
from serve_app.schemas import GenerationRequest
from serve_app.schemas.examples import examples
from serve_app.schemas.workflow import WorkflowRequest
from serve_app.submission.prepare import ServedEndpoint
from serve_app.submission.submit import submit
from serve_app.tasks.rejections import TaskRejected
from serve_app.tasks.task import AcceptedTask

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]


def served_endpoints(catalog: Catalog, settings: Settings) -> dict[str, ServedEndpoint]:
    """Returns the endpoints that this region serves, by path."""
    by_name = {
        name: ServedEndpoint(name, endpoint, catalog.defaults(endpoint, settings))
        for name, endpoint in catalog.served.items()
        if not other_regions_message(name, endpoint, settings.service)
    }
    return {f"/v1/{name}": by_name[main] for name, main in catalog.names.items() if main in by_name}


def router(catalog: Catalog, settings: Settings, served_endpoints: Mapping[str, ServedEndpoint]) -> APIRouter:
    routes = APIRouter(tags=["generate"], route_class=FilesRoute)
    for name, main_name in catalog.names.items():
        path, endpoint = f"/v1/{name}", catalog.served[main_name]
        if message := other_regions_message(main_name, endpoint, settings.service):
            routes.add_api_route(path, _refuse(404, message), methods=["POST"], include_in_schema=False)
            continue
        routes.add_api_route(
            path,
            _handler(served_endpoints[path]),
            methods=["POST"],
            response_model=Submission,
            response_model_exclude_unset=True,
            summary=endpoint.summary or name,
            operation_id=camel_case(name),
            deprecated=name in catalog.deprecated or None,
            openapi_extra={**_example_bodies(endpoint), "x-prices": _prices(endpoint)},
            responses=errors(*((400,) if endpoint.takes_finetunes else ()), 402, 403, 409, 413, 429, 503),
        )
    for name, withdrawn in catalog.withdrawn.items():
        routes.add_api_route(
            f"/v1/{name}",
            _refuse(410, _gone_message(name, withdrawn)),
            methods=["POST"],
            status_code=410,
            response_model=ErrorResponse,
            response_description="No longer served",
            summary=f"No longer served: {name}",
            operation_id=camel_case(name),
            deprecated=True,
        )
    return routes


def _prices(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Returns the price of each mode in credits: the first megapixel, each further one, each input one."""
    return [
        {**({"mode": mode} if mode else {}), **endpoint.get_price(mode).model_dump(mode="json")}
        for mode in endpoint.modes_or_default
    ]


def _example_bodies(endpoint: Endpoint) -> dict[str, Any]:
    form = endpoint.request_type
    is_workflow = issubclass(form, WorkflowRequest)
    bodies = form.examples() if is_workflow else examples(endpoint.request, tuned=endpoint.takes_finetunes)
    bodies_by_name = {name: {"value": body} for name, body in bodies.items()}
    return {"requestBody": {"content": {"application/json": {"examples": bodies_by_name}}}}


def _gone_message(name: str, withdrawn: Withdrawn) -> str:
    message = f"{name} is no longer served"
    if withdrawn.successors:
        return f"{message}: use {' or '.join(withdrawn.successors)}"
    return f"{message} and has no successor" + (f": {withdrawn.advice}" if withdrawn.advice else "")


def _refuse(status: int, message: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise HTTPException(status, message)

    return refuse


async def submit_body(
    services: Services,
    caller: Caller,
    served_endpoint: ServedEndpoint,
    body: GenerationRequest,
    request: Request,
    idempotency_key: str | None,
) -> AcceptedTask:
    """Submits a task. Raises HTTPException if the task store rejects it."""
    try:
        return await submit(
            services.inputs.submission,
            caller,
            served_endpoint,
            body,
            base=public_base(request, services.settings.service),
            idempotency_key=idempotency_key or "",
            traceparent=request.headers.get("traceparent", ""),
        )
    except TaskRejected as rejected:
        raise rejection_error(rejected, served_endpoint.name, services) from None


def _handler(served_endpoint: ServedEndpoint) -> Callable[..., Awaitable[Response]]:
    async def handle(
        body: BaseModel,
        request: Request,
        services: Deps,
        caller: Generator,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        assert isinstance(body, GenerationRequest)
        accepted = await submit_body(services, caller, served_endpoint, body, request, idempotency_key)
        headers = rate_limit_headers(services.tasks.store.limits, accepted.requests_left)
        return Response(accepted.reply, media_type="application/json", headers=headers)

    # FastAPI reads the annotation for validation and documentation.
    handle.__annotations__["body"] = served_endpoint.endpoint.request_type
    return handle
