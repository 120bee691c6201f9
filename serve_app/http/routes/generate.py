"""`POST /v1/<endpoint>`: from a request to an accepted task.

Validate, authenticate, price, store the inputs, then one atomic step in Redis. Whatever refuses the request leaves
nothing behind; whatever kills this process before that step leaves at most inputs, which are swept.

An endpoint that the catalog gives to other regions only is a 404 here, which names the addresses that serve it. Tasks
have no region: every address answers for every task that its store knows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Request, Response
from pydantic import BaseModel

from serve_app.accounts.callers import Caller
from serve_app.config.catalog import Catalog, Endpoint, Recipes
from serve_app.config.settings import Settings
from serve_app.http import refusals
from serve_app.http.auth import Generator
from serve_app.http.origin import public_base
from serve_app.http.regions import elsewhere
from serve_app.http.routes.schemas import Submission, errors
from serve_app.http.services import Deps, Services
from serve_app.media.url_guard import receiver_of
from serve_app.requests import GenerationRequest
from serve_app.submission import prepare as orders
from serve_app.submission.prepare import Input, Order
from serve_app.tasks.limits import IdempotencyMismatch, Refused
from serve_app.tasks.task import Accepted, NewTask, Webhook

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]


def router(catalog: Catalog, settings: Settings) -> APIRouter:
    """One route per endpoint of the catalog."""
    routes = APIRouter(tags=["generate"])
    for name, endpoint in catalog.served.items():
        if message := elsewhere(name, endpoint, settings.service):
            routes.add_api_route(f"/v1/{name}", _refusing(message), methods=["POST"], include_in_schema=False)
            continue
        routes.add_api_route(
            f"/v1/{name}",
            _handler(name, endpoint, catalog.recipes(endpoint, settings)),
            methods=["POST"],
            response_model=Submission,
            response_model_exclude_unset=True,
            summary=endpoint.summary or name,
            operation_id=name,
            deprecated=endpoint.deprecated is not None or None,
            responses=errors(*((400,) if endpoint.tuned else ()), 402, 403, 413, 429, 503),
        )
    return routes


def _refusing(message: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise HTTPException(404, message)

    return refuse


def _handler(name: str, endpoint: Endpoint, recipes: Recipes) -> Callable[..., Awaitable[dict[str, Any]]]:
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
        accepted = await _accept(services, caller, name, endpoint, recipes, body, base, idempotency_key or "")
        if accepted.requests_left is not None:
            response.headers.update(refusals.rate_limit(services.tasks.limits, accepted.requests_left))
        return json.loads(accepted.reply)

    # The real type, for validation and for the API's description.
    submit.__annotations__["body"] = endpoint.request_type
    return submit


async def _accept(
    services: Services,
    caller: Caller,
    name: str,
    endpoint: Endpoint,
    recipes: Recipes,
    body: GenerationRequest,
    base: str,
    idempotency_key: str,
) -> Accepted:
    # In a thread: the body may be hundreds of megabytes of pictures.
    body_hash = await asyncio.to_thread(_body_hash, name, body) if idempotency_key else ""
    if idempotency_key and (earlier := await _earlier_reply(services, caller, idempotency_key, body_hash, name)):
        return Accepted(earlier, created=False)
    order = await orders.checked(services, caller, name, endpoint, recipes, body)

    task_id = str(uuid.uuid4())
    keys = [f"inputs/{task_id}/{n}.{each.extension}" for n, (_, each) in enumerate(order.inputs)]
    reply = _reply(task_id, base, endpoint, body, order)
    task = NewTask(
        id=task_id,
        project=caller.project.id,
        organization=caller.organization,
        lane=order.recipe.model,
        endpoint=name,
        job=json.dumps(_job(order, keys)),
        work=order.plan.work,
        weight=caller.project.weight,
        reply=json.dumps(reply),
        price=order.price,
        key_id=caller.id,
        user=body.user or "",
        webhook=_webhook(services, body, base),
        input_count=len(order.inputs),
        idempotency_key=idempotency_key,
        body_hash=body_hash,
    )
    try:
        await _store(services, task_id, keys, order.inputs)
        accepted = await services.tasks.submit(task)
    except Refused as refusal:
        await _discard(services, task_id, keys)
        raise refusals.answer(refusal, name, services.tasks.limits) from None
    if not accepted.created:
        await _discard(services, task_id, keys)
    return accepted


async def _earlier_reply(
    services: Services, caller: Caller, idempotency_key: str, body_hash: str, name: str
) -> str | None:
    try:
        return await services.tasks.submitted(caller.project.id, idempotency_key, body_hash)
    except IdempotencyMismatch as refusal:
        raise refusals.answer(refusal, name, services.tasks.limits) from None


async def _store(services: Services, task_id: str, keys: list[str], inputs: list[Input]) -> None:
    if inputs:
        await services.tasks.reserve(task_id)
        for key, (_, each) in zip(keys, inputs, strict=True):
            await services.objects.put(key, each.data, each.content_type)


async def _discard(services: Services, task_id: str, keys: list[str]) -> None:
    if keys:
        await services.objects.delete_prefix(f"inputs/{task_id}")
        await services.tasks.sweep([task_id], limit=0)


def _webhook(services: Services, body: GenerationRequest, base: str) -> Webhook | None:
    if not body.webhook_url:
        return None
    secret = services.sealer.seal(body.webhook_secret.get_secret_value()) if body.webhook_secret else ""
    return Webhook(body.webhook_url, receiver_of(body.webhook_url), base, secret)


def _by_role(inputs: list[Input], keys: list[str]) -> dict[str, Any]:
    """The job's fields for what was sent: a list of references, one key or None for any other role."""
    references = [key for key, (role, _) in zip(keys, inputs, strict=True) if role == "references"]
    single = {role: key for key, (role, _) in zip(keys, inputs, strict=True) if role != "references"}
    return {"references": references, **dict.fromkeys(("mask", "control", "image_prompt", "start_video")), **single}


def _job(order: Order, keys: list[str]) -> dict[str, Any]:
    """What the dispatcher needs: the plan as it is, the keys of what was sent, and what the plan does not know."""
    decided = asdict(order.plan)
    del decided["input_pixels"]
    inputs = _by_role(order.inputs, keys)
    if order.draft is not None:
        inputs |= {"references": order.draft.references, "start_video": order.draft.start}
    allowed = {"safety_tolerance": order.tolerance.level, "safety_ceilings": dict(order.tolerance.ceilings)}
    return {**decided, **inputs, **allowed, "adapter": order.adapter}


def _reply(task_id: str, base: str, endpoint: Endpoint, body: GenerationRequest, order: Order) -> dict[str, Any]:
    reply: dict[str, Any] = {"id": task_id, "polling_url": f"{base}/v1/get_result?id={task_id}"}
    quoted = endpoint.quotes_price
    reply["cost"] = order.price / 1000 if quoted else None
    reply["input_mp"] = order.input_mp if quoted else None
    reply["output_mp"] = order.output_mp if quoted else None
    if body.webhook_url:
        reply |= {"status": "Pending", "webhook_url": body.webhook_url}
    return reply


def _body_hash(name: str, body: GenerationRequest) -> str:
    """Equal for requests that mean the same: order of keys and fields left at their default don't matter."""
    meant = body.model_dump(mode="json", exclude_unset=True)
    if body.webhook_secret is not None:
        meant["webhook_secret"] = body.webhook_secret.get_secret_value()  # dumped as asterisks
    return hashlib.sha256(f"{name}\n{json.dumps(meant, sort_keys=True)}".encode()).hexdigest()
