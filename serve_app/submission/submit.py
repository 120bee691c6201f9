"""Submission: from a request to an accepted task.

First a look at the limits, which costs next to nothing, and keeps an idempotency key for this request. Then check,
price, store the inputs, and one atomic step in Redis, which decides. What refuses the request leaves nothing behind;
whatever kills this process before that step leaves at most inputs, which are swept, and the key, which runs out.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from redis.exceptions import RedisError

from deployments.contract.job import InputKeys
from deployments.telemetry import logs
from deployments.telemetry.tracing import trace_id
from serve_app.accounts.api_key_auth import Caller
from serve_app.config.catalog import Endpoint
from serve_app.inputs.url_guard import parse_destination
from serve_app.schemas import GenerationRequest
from serve_app.submission.errors import Invalid
from serve_app.submission.input_storage import UNKNOWN_DRAFT, File, discard, store
from serve_app.submission.prepare import Dependencies, PreparedRequest, ServedEndpoint, prepare
from serve_app.tasks.limits import NeededTaskGone, Refused
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import AcceptedTask, NewTask, Webhook

_PIECE_CHARS: Final = 2**20
_GIVE_UP_S: Final = 1.0


async def accept(
    dependencies: Dependencies,
    caller: Caller,
    served_endpoint: ServedEndpoint,
    body: GenerationRequest,
    *,
    base: str,
    idempotency_key: str = "",
    traceparent: str = "",
) -> AcceptedTask:
    """The accepted task, or the reply to an earlier request with the same key.

    `base` is the service's own address as the client reached it, `traceparent` the client's own, if it sent one. Raises
    Invalid, FinetuneUnusable or StorageOutOfReach (errors.py), a kind of Refused (tasks/limits.py), or
    redis.RedisError; then there is no task and nothing is held. Raises Uncertain.
    """
    task_id, project, queue = str(uuid.uuid4()), caller.project.id, served_endpoint.defaults[body.chosen_mode()].model
    attributes = {"gen.task": task_id, "gen.project": project, "gen.queue": queue, "gen.endpoint": served_endpoint.name}
    with dependencies.tracer.span("submit", traceparent, attributes, "server") as span:
        logs.about(task=task_id, project=project, queue=queue, trace=trace_id(span.traceparent))
        return await _prepare_and_submit(
            dependencies, caller, served_endpoint, body, task_id, base, idempotency_key, span.traceparent
        )


async def _prepare_and_submit(
    dependencies: Dependencies,
    caller: Caller,
    served_endpoint: ServedEndpoint,
    body: GenerationRequest,
    task_id: str,
    base: str,
    idempotency_key: str,
    traceparent: str,
) -> AcceptedTask:
    tasks = dependencies.tasks
    # In a thread: the body may be hundreds of megabytes of images.
    body_hash = await asyncio.to_thread(_body_hash, served_endpoint.name, body) if idempotency_key else ""
    earlier = await tasks.look(
        queue=served_endpoint.defaults[body.chosen_mode()].model,
        project=caller.project.id,
        organization=caller.organization,
        price=served_endpoint.endpoint.get_price(body.chosen_mode()).least,
        key_id=caller.id,
        idempotency_key=idempotency_key,
        body_hash=body_hash,
        task_id=task_id,
    )
    if earlier is not None:
        return AcceptedTask(earlier, created=False)
    try:
        request = await prepare(dependencies, caller, served_endpoint, body)
        files = {f"inputs/{task_id}/{n}.{each.extension}": each for n, (_, each) in enumerate(request.inputs)}
        task = NewTask(
            id=task_id,
            project=caller.project.id,
            organization=caller.organization,
            queue=request.defaults.model,
            endpoint=served_endpoint.name,
            job=_payload(request, list(files)).encode(),
            work=request.resolved.work,
            weight=caller.project.weight,
            reply=json.dumps(_reply(task_id, base, served_endpoint.endpoint, body, request)),
            price=request.price,
            key_id=caller.id,
            user=body.user or "",
            webhook=_webhook(dependencies, body, base),
            idempotency_key=idempotency_key,
            body_hash=body_hash,
            traceparent=traceparent,
            needs=request.draft.task if request.draft else "",
        )
        return await _submit(dependencies, task, files)
    except BaseException:
        if idempotency_key:
            await _give_up_key(tasks, caller.project.id, idempotency_key, task_id)
        raise


async def _submit(dependencies: Dependencies, task: NewTask, files: Mapping[str, File]) -> AcceptedTask:
    tasks, objects = dependencies.tasks, dependencies.objects
    await store(tasks, objects, task.project, task.id, files)
    try:
        result = await tasks.submit(task)
    except Refused as refusal:
        if files:
            await discard(tasks, objects, task.id, files)
        if isinstance(refusal, NeededTaskGone):
            raise Invalid(["body", "draft_cache"], UNKNOWN_DRAFT, "draft_unknown") from None
        raise
    if files and not result.created:
        await discard(tasks, objects, task.id, files)
    return result


async def _give_up_key(tasks: TaskStore, project: str, idempotency_key: str, task_id: str) -> None:
    """So that a repetition can be handled at once; where the task store is away, after `CLAIM_S`."""
    with suppress(RedisError, TimeoutError):
        async with asyncio.timeout(_GIVE_UP_S):
            await tasks.give_up_key(project, idempotency_key, task_id)


def _payload(request: PreparedRequest, keys: Sequence[str]) -> TaskPayload:
    roles = [role for role, _ in request.inputs]
    references = tuple(key for key, role in zip(keys, roles, strict=True) if role == "references")
    single: dict[str, Any] = {role: key for key, role in zip(keys, roles, strict=True) if role != "references"}
    return TaskPayload(
        request=request.resolved,
        inputs=request.draft.inputs if request.draft else InputKeys(references=references, **single),
        adapter=request.adapter,
        safety=request.tolerance,
        warnings=request.warnings,
    )


def _reply(
    task_id: str, base: str, endpoint: Endpoint, body: GenerationRequest, request: PreparedRequest
) -> dict[str, Any]:
    reply: dict[str, Any] = {"id": task_id, "polling_url": f"{base}/v1/get_result?id={task_id}"}
    quotes_price = endpoint.quotes_price
    reply["cost"] = request.price / 1000 if quotes_price else None
    reply["input_mp"] = request.input_mp if quotes_price else None
    reply["output_mp"] = request.output_mp if quotes_price else None
    if body.webhook_url:
        reply |= {"status": "Pending", "webhook_url": body.webhook_url}
    if request.warnings:
        reply["warnings"] = list(request.warnings)
    return reply


def _webhook(dependencies: Dependencies, body: GenerationRequest, base: str) -> Webhook | None:
    if not body.webhook_url:
        return None
    secret = dependencies.seal(body.webhook_secret.get_secret_value()) if body.webhook_secret else ""
    return Webhook(body.webhook_url, parse_destination(body.webhook_url), base, secret)


def _body_hash(name: str, body: GenerationRequest) -> str:
    """Equal for requests that mean the same: order of keys and fields left at their default don't matter."""
    payload = body.model_dump(mode="json", exclude_unset=True)
    if body.webhook_secret is not None:
        payload["webhook_secret"] = body.webhook_secret.get_secret_value()  # dumped as asterisks
    digest = hashlib.sha256(f"{name}\n".encode())
    for piece in _json(payload):
        digest.update(piece.encode())
    return digest.hexdigest()


def _json(value: Any) -> Iterator[str]:
    """As `json.dumps` with sorted keys, in pieces: no other thread has to wait for an image to be through."""
    if isinstance(value, str):
        yield '"'
        for start in range(0, len(value), _PIECE_CHARS):
            yield json.dumps(value[start : start + _PIECE_CHARS])[1:-1]
        yield '"'
    elif isinstance(value, dict):
        yield "{"
        for n, name in enumerate(sorted(value)):
            yield f"{', ' if n else ''}{json.dumps(name)}: "
            yield from _json(value[name])
        yield "}"
    elif isinstance(value, list):
        yield "["
        for n, each in enumerate(value):
            yield ", " if n else ""
            yield from _json(each)
        yield "]"
    else:
        yield json.dumps(value)
