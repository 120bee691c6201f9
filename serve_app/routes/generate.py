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

from serve_app import refusals
from serve_app.accounts.callers import Caller
from serve_app.auth import Generator
from serve_app.catalog import Catalog, Endpoint
from serve_app.errors import Invalid
from serve_app.media.guard import UrlRefused
from serve_app.origin import public_base
from serve_app.quotes import Quote, quote
from serve_app.requests import GenerationRequest
from serve_app.requests.pictures import Picture
from serve_app.requests.plan import Plan, Sampling
from serve_app.routes.schemas import Submission, errors
from serve_app.services import Deps, Services
from serve_app.settings import ServiceSettings, Settings
from serve_app.tasks.limits import IdempotencyMismatch, Refused
from serve_app.tasks.task import Accepted, NewTask

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]


def router(catalog: Catalog, settings: Settings) -> APIRouter:
    """One route per endpoint of the catalog."""
    routes = APIRouter(tags=["generate"])
    for name, endpoint in catalog.served.items():
        if _is_elsewhere(endpoint, settings.service):
            refusal = _elsewhere(name, endpoint, settings.service)
            routes.add_api_route(f"/v1/{name}", refusal, methods=["POST"], include_in_schema=False)
            continue
        routes.add_api_route(
            f"/v1/{name}",
            _handler(name, endpoint, catalog.sampling(endpoint, settings)),
            methods=["POST"],
            response_model=Submission,
            response_model_exclude_unset=True,
            summary=endpoint.summary or name,
            operation_id=name,
            deprecated=endpoint.deprecated is not None or None,
            responses=errors(*((400,) if endpoint.tuned else ()), 402, 403, 413, 429, 503),
        )
    return routes


def _is_elsewhere(endpoint: Endpoint, service: ServiceSettings) -> bool:
    return service.region is not None and bool(endpoint.regions) and service.region not in endpoint.regions


def _elsewhere(name: str, endpoint: Endpoint, service: ServiceSettings) -> Callable[[], Awaitable[None]]:
    addresses = ", ".join(f"{service.regions[region].rstrip('/')}/v1/{name}" for region in endpoint.regions)

    async def refuse() -> None:
        raise HTTPException(404, f"Not served in region {service.region}; this endpoint is at {addresses}")

    return refuse


def _handler(name: str, endpoint: Endpoint, sampling: Sampling) -> Callable[..., Awaitable[dict[str, Any]]]:
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
        accepted = await _accept(services, caller, name, endpoint, sampling, body, base, idempotency_key or "")
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
    sampling: Sampling,
    body: GenerationRequest,
    base: str,
    idempotency_key: str,
) -> Accepted:
    # In a thread: the body may be hundreds of megabytes of pictures.
    body_hash = await asyncio.to_thread(_body_hash, name, body) if idempotency_key else ""
    if idempotency_key and (earlier := await _earlier_reply(services, caller, idempotency_key, body_hash, name)):
        return Accepted(earlier, created=False)
    tolerance = _approved_tolerance(name, endpoint, caller, body)
    await _check_webhook(services, body)
    adapter = await _adapter(services, caller, endpoint, body)
    order = await quote(services.guard, endpoint, sampling, body)
    plan, pictures = order.plan, order.pictures

    task_id = str(uuid.uuid4())
    keys = [f"inputs/{task_id}/{n}.{image.extension}" for n, (_, image) in enumerate(pictures)]
    reply = _reply(task_id, base, endpoint, body, order)
    task = NewTask(
        id=task_id,
        project=caller.project.id,
        organization=caller.organization,
        lane=endpoint.model,
        endpoint=name,
        job=json.dumps(_job(plan, _by_role(pictures, keys), adapter, tolerance)),
        work=plan.work,
        weight=caller.project.weight,
        reply=json.dumps(reply),
        price=order.price,
        key_id=caller.id,
        user=body.user or "",
        webhook_url=body.webhook_url or "",
        webhook_secret=body.webhook_secret.get_secret_value() if body.webhook_secret else "",
        input_count=len(pictures),
        idempotency_key=idempotency_key,
        body_hash=body_hash,
    )
    try:
        await _store(services, task_id, keys, pictures)
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


def _approved_tolerance(name: str, endpoint: Endpoint, caller: Caller, body: GenerationRequest) -> int:
    highest = caller.safety.get(name, endpoint.safety.approved)
    tolerance = min(endpoint.safety.default, highest) if body.safety_tolerance is None else body.safety_tolerance
    if tolerance > highest:
        approved = list(range(highest + 1))
        message = f"Level {tolerance} is not approved for this endpoint; approved levels: {approved}"
        raise Invalid(["body", "safety_tolerance"], message, "safety_tolerance_not_approved", approved=approved)
    return tolerance


async def _check_webhook(services: Services, body: GenerationRequest) -> None:
    if body.webhook_url:
        try:
            await services.guard.check(body.webhook_url)
        except UrlRefused as refusal:
            raise Invalid(["body", "webhook_url"], str(refusal)) from None


async def _adapter(
    services: Services, caller: Caller, endpoint: Endpoint, body: GenerationRequest
) -> dict[str, Any] | None:
    """The tuned model that the request asks for, as the job names it."""
    wanted = body.tuned_model()
    if wanted is None:
        return None
    finetune_id, strength = wanted
    finetune = await services.finetunes.get(finetune_id, caller.project.id)
    if finetune is None or finetune.status != "Ready" or finetune.lane != endpoint.model:
        raise HTTPException(400, "Finetune not found or not ready")
    return {"id": finetune.id, "key": finetune.key, "strength": strength}


async def _store(services: Services, task_id: str, keys: list[str], pictures: list[Picture]) -> None:
    if pictures:
        await services.tasks.reserve(task_id)
        for key, (_, image) in zip(keys, pictures, strict=True):
            await services.objects.put(key, image.data, image.content_type)


async def _discard(services: Services, task_id: str, keys: list[str]) -> None:
    if keys:
        await services.objects.delete_prefix(f"inputs/{task_id}")
        await services.tasks.sweep([task_id], limit=0)


def _by_role(pictures: list[Picture], keys: list[str]) -> dict[str, Any]:
    """The job's fields for its pictures: a list of references, one key or None for any other role."""
    references = [key for key, (role, _) in zip(keys, pictures, strict=True) if role == "references"]
    single = {role: key for key, (role, _) in zip(keys, pictures, strict=True) if role != "references"}
    return {"references": references, **dict.fromkeys(("mask", "control", "image_prompt")), **single}


def _job(plan: Plan, pictures: dict[str, Any], adapter: dict[str, Any] | None, tolerance: int) -> dict[str, Any]:
    """What the dispatcher needs: the plan as it is, the keys of the pictures, and what the plan does not know."""
    decided = asdict(plan)
    del decided["input_pixels"]
    return {**decided, **pictures, "adapter": adapter, "safety_tolerance": tolerance}


def _reply(task_id: str, base: str, endpoint: Endpoint, body: GenerationRequest, order: Quote) -> dict[str, Any]:
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
