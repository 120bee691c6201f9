"""Submission: from a request to an accepted task.

A request that is costly to prepare is checked against the limits first, which costs next to nothing and keeps an
idempotency key for it. Then its inputs are checked, priced and stored, and one atomic step in Redis decides. A rejected
request leaves nothing behind. A process that dies before that step leaves at most inputs, which are swept, and the key,
which runs out.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from redis.exceptions import RedisError

from deployments.telemetry import logs
from deployments.telemetry.tracing import trace_id
from serve_app.accounts.api_key_auth import Caller
from serve_app.inputs.geometry import megapixels
from serve_app.inputs.ssrf import parse_destination
from serve_app.schemas import GenerationRequest
from serve_app.submission.errors import Invalid
from serve_app.submission.input_storage import UNKNOWN_DRAFT, discard, store
from serve_app.submission.prepare import PreparedTask, RequestPreparation, ServedEndpoint, SubmissionContext
from serve_app.tasks.rejections import NeededTaskGone, TaskRejected
from serve_app.tasks.task import AcceptedTask, NewTask, Webhook

_PIECE_CHARS: Final = 2**20
_RELEASE_KEY_S: Final = 1.0


async def submit(
    context: SubmissionContext,
    caller: Caller,
    served_endpoint: ServedEndpoint,
    body: GenerationRequest,
    *,
    base: str,
    idempotency_key: str = "",
    traceparent: str = "",
) -> AcceptedTask:
    """Returns the accepted task, or the reply to an earlier request with the same idempotency key.

    `base` is the service's own address as the client reached it, `traceparent` the client's own, if it sent one. Raises
    Invalid, FinetuneUnusable or StorageUnreachable (errors.py), a kind of TaskRejected (tasks/rejections.py), or
    redis.RedisError; then there is no task and nothing is held. Raises SubmissionUnknown.
    """
    task_id, project = str(uuid.uuid4()), caller.project
    queue = served_endpoint.defaults[body.chosen_mode()].model
    attributes = {"gen.task": task_id, "gen.project": project.id, "gen.queue": queue}
    attributes["gen.endpoint"] = served_endpoint.name
    with context.tracer.span("submit", traceparent, attributes, "server") as span:
        logs.bind(task=task_id, project=project.id, queue=queue, trace=trace_id(span.traceparent))
        # In a thread: the body may be hundreds of megabytes of images.
        body_hash = await asyncio.to_thread(_body_hash, served_endpoint.name, body) if idempotency_key else ""
        if idempotency_key or body.has_inputs:
            earlier = await context.tasks.precheck(
                queue=queue,
                project=project.id,
                organization=caller.organization,
                price=served_endpoint.endpoint.get_price(body.chosen_mode()).minimum,
                key_id=caller.id,
                task_id=task_id,
                idempotency_key=idempotency_key,
                body_hash=body_hash,
            )
            if earlier is not None:
                return AcceptedTask(earlier, created=False)
        try:
            prepared = await RequestPreparation(context, caller, served_endpoint, body).prepare(task_id)
            task = NewTask(
                id=task_id,
                project=project.id,
                organization=caller.organization,
                queue=queue,
                endpoint=served_endpoint.name,
                payload=prepared.payload,
                reply=_reply(task_id, base, body, prepared, quotes_price=served_endpoint.endpoint.quotes_price),
                price=prepared.price,
                weight=project.weight,
                key_id=caller.id,
                user=body.user or "",
                webhook=_webhook(context, body, body.webhook_url, base) if body.webhook_url else None,
                idempotency_key=idempotency_key,
                body_hash=body_hash,
                traceparent=span.traceparent,
                needs=prepared.draft,
            )
            if prepared.files:
                return await _store_and_submit(context, task, prepared)
            return await context.tasks.submit(task)
        except BaseException as problem:
            if idempotency_key:
                await _release_key(context, project.id, idempotency_key, task_id)
            if isinstance(problem, NeededTaskGone):
                raise Invalid(["body", "draft_cache"], UNKNOWN_DRAFT, "draft_unknown") from None
            raise


async def _store_and_submit(context: SubmissionContext, task: NewTask, prepared: PreparedTask) -> AcceptedTask:
    """Keeps the files of a task that is created, and no others."""
    tasks, objects, files = context.tasks, context.objects, prepared.files
    await store(tasks, objects, task.project, task.id, files)
    try:
        accepted = await tasks.submit(task)
    except TaskRejected:
        await discard(tasks, objects, task.id, files)
        raise
    if not accepted.created:
        await discard(tasks, objects, task.id, files)
    return accepted


async def _release_key(context: SubmissionContext, project: str, idempotency_key: str, task_id: str) -> None:
    """Lets a repetition be handled at once; after `CLAIM_S` where the task store is away."""
    with suppress(RedisError, TimeoutError):
        async with asyncio.timeout(_RELEASE_KEY_S):
            await context.tasks.release_idempotency_key(project, idempotency_key, task_id)


def _reply(task_id: str, base: str, body: GenerationRequest, prepared: PreparedTask, *, quotes_price: bool) -> str:
    request = prepared.payload.request
    reply: dict[str, Any] = {
        "id": task_id,
        "polling_url": f"{base}/v1/get_result?id={task_id}",
        "cost": prepared.price / 1000 if quotes_price else None,
        "input_mp": megapixels(request.input_pixels) if quotes_price else None,
        "output_mp": megapixels(request.area) if quotes_price else None,
    }
    if body.webhook_url:
        reply |= {"status": "Pending", "webhook_url": body.webhook_url}
    if prepared.payload.warnings:
        reply["warnings"] = list(prepared.payload.warnings)
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


def _webhook(context: SubmissionContext, body: GenerationRequest, url: str, base: str) -> Webhook:
    secret = context.seal(body.webhook_secret.get_secret_value()) if body.webhook_secret else ""
    return Webhook(url, parse_destination(url), base, secret)


def _body_hash(name: str, body: GenerationRequest) -> str:
    """Returns a hash that is equal for requests with the same meaning: field order and defaults don't matter."""
    payload = body.model_dump(mode="json", exclude_unset=True)
    if body.webhook_secret is not None:
        payload["webhook_secret"] = body.webhook_secret.get_secret_value()  # dumped as asterisks
    digest = hashlib.sha256(f"{name}\n".encode())
    for piece in _json(payload):
        digest.update(piece.encode())
    return digest.hexdigest()


def _json(value: Any) -> Iterator[str]:
    """Yields the text of `json.dumps` with sorted keys, in pieces, so that no image keeps other threads waiting."""
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
