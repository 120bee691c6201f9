"""The webhook sender: claims due deliveries, signs and posts them, records the answers.

Any number of senders work beside each other and share only the outbox. The claims of one that dies run out, and another
sender makes the next attempt on schedule. So a destination may get a webhook twice, with the same `webhook-id`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import Final

import httpx2
from redis.exceptions import RedisError
from standardwebhooks import Webhook as StandardWebhook

from deployments.contract.objects import UNREACHABLE
from deployments.telemetry import logs
from deployments.telemetry.tracing import OFF, Tracer, trace_id
from serve_app.background import idle, rest
from serve_app.encryption import Sealer, UnknownSealingKey
from serve_app.inputs.bounded_response import ResponseRejected
from serve_app.inputs.resolver import dns_tenant
from serve_app.inputs.ssrf import UrlGuard, UrlRefused, connection_problem
from serve_app.schemas.fields import decode_secret
from serve_app.tasks.serializer import ResultSerializer, encode_body
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Task, Webhook
from serve_app.webhooks.outbox import AttemptRecord, Claim, DeliveryOutcome, DestinationHealth, Outbox

logger = logging.getLogger(__name__)

RESPONSE_BYTES: Final = 1024
"""Bytes of an answer's body that are read."""
_BODY_S: Final = 1.0
"""Seconds to read the body, after the status has decided."""
_GONE: Final = 410
_BUSY: Final = 429
_CONTENT_TYPE: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int | None
    """HTTP status; None without an answer, for the reason in `error`."""
    error: str = ""
    text: str = ""
    """Beginning of the body; empty for an encoded one."""
    retry_after_s: float | None = None
    took_s: float = 0.0
    called: bool = True
    """False if the attempt ended before a call."""
    is_final: bool = False
    """True if every later attempt would fail, too."""

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def health(self) -> DestinationHealth:
        """The health of the destination: a call that it refuses is no sign of trouble."""
        if not self.called:
            return DestinationHealth.UNKNOWN
        is_down = self.status is None or self.status >= 500 or self.status == _BUSY
        return DestinationHealth.DOWN if is_down else DestinationHealth.UP


async def post(
    client: httpx2.AsyncClient, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
) -> Answer:
    """Makes one call. Errors of the destination and the network are answers without a status."""
    started_at = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            response = await _call(client, url, body, headers)
        answer = await _read(response)
    except (TimeoutError, httpx2.TimeoutException):
        answer = Answer(None, f"no answer within {timeout_s:g} s")
    except (UrlRefused, ResponseRejected) as refusal:
        answer = Answer(None, str(refusal))
    except httpx2.ConnectError as error:
        answer = Answer(None, connection_problem(error))
    except (httpx2.HTTPError, httpx2.InvalidURL):
        answer = Answer(None, "the connection broke, or what came was not HTTP")
    return replace(answer, took_s=time.monotonic() - started_at, is_final=answer.status == _GONE)


async def _call(client: httpx2.AsyncClient, url: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
    """Returns a response whose body is not read yet."""
    request_headers = {"content-type": _CONTENT_TYPE, "accept-encoding": "identity", **headers}
    return await client.send(client.build_request("POST", url, content=body, headers=request_headers), stream=True)


async def _read(response: httpx2.Response) -> Answer:
    """Reads the beginning of the body, which may be late, broken or endless, and closes the response."""
    head = b""
    try:
        async with asyncio.timeout(_BODY_S):
            # The raw bytes: a few kilobytes can decompress to enough to block all other deliveries.
            async for part in response.aiter_raw():
                head += part
                if len(head) >= RESPONSE_BYTES:
                    break
    except (TimeoutError, ResponseRejected, httpx2.HTTPError):
        pass
    finally:
        await response.aclose()
    retry_after_s = _seconds(response.headers.get("retry-after", ""))
    text = head[:RESPONSE_BYTES].decode(errors="replace") if response.headers.get("content-encoding") is None else ""
    return Answer(response.status_code, text=text, retry_after_s=retry_after_s)


def _seconds(retry_after: str) -> float | None:
    """Parses seconds or a date (RFC 9110)."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    try:
        at = parsedate_to_datetime(retry_after)
    except (OverflowError, TypeError, ValueError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def signature_headers(
    webhook_id: str, at: datetime, body: bytes, secret: str | None, plain: Sequence[str] = ()
) -> dict[str, str]:
    """Signs `body`, sent at `at`, if there is a secret; `plain` names headers of signatures over the body alone."""
    headers = {"webhook-id": webhook_id, "webhook-timestamp": str(int(at.timestamp()))}
    if not secret:
        return headers
    # The library takes any time for UTC, and text only; it signs the bytes that are sent.
    headers["webhook-signature"] = StandardWebhook(decode_secret(secret)).sign(
        webhook_id, at.astimezone(UTC), body.decode()
    )
    # The key is the text of the secret, as destinations know it.
    digest = f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"
    return headers | dict.fromkeys(plain, digest)


USER_AGENT: Final = "gen-serve-webhooks/1"
_TASK_GONE: Final = "the task is no longer kept"
_UNREADABLE: Final = "its address or secret was sealed with a key that is no longer among sealing.keys"
_NO_LINKS: Final = "the links of its results could not be made: the object store was out of reach"
_SENDER_FAILED: Final = "the sender failed; its log says why"
_POLL_S: Final = 0.5
_PROLONGS_PER_CLAIM: Final = 3


class Sender:
    def __init__(
        self,
        outbox: Outbox,
        tasks: TaskStore,
        serializer: ResultSerializer,
        sealer: Sealer,
        guard: UrlGuard,
        plain_signatures: Sequence[str] = (),
        tracer: Tracer = OFF,
    ) -> None:
        """`plain_signatures` names the headers of signatures over the body alone."""
        self._outbox = outbox
        self._tasks = tasks
        self._serializer = serializer
        self._sealer = sealer
        self._tracer = tracer
        self._plain_signatures = tuple(plain_signatures)
        self._random = Random()
        settings = self._settings = outbox.settings
        limits = httpx2.Limits(
            max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency // 4
        )
        self._client = guard.client(timeout=settings.timeout_s, limits=limits, headers={"user-agent": USER_AGENT})
        self._running: dict[Claim, asyncio.Task[None]] = {}
        self._wake_up = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._draining = False
        self._was_full = False
        """True if the last claim used all capacity: more may be due."""

    async def listen(self) -> None:
        """Subscribes to wake-ups. Messages can be lost: `send` polls, too."""
        async with self._outbox.redis.pubsub() as pubsub:
            await pubsub.subscribe(self._outbox.channel)
            messages = pubsub.listen()
            while True:
                with idle():
                    await anext(messages)
                self._wake_up.set()

    async def send(self) -> None:
        """Claims and starts deliveries as they become due, up to the limit."""
        while True:
            self._wake_up.clear()
            async with self._claiming:
                capacity = 0 if self._draining else self._settings.concurrency - len(self._running)
                claims = await self._outbox.claim(capacity) if capacity > 0 else []
                for claim in claims:
                    running = self._running[claim] = asyncio.create_task(self._deliver(claim))
                    running.add_done_callback(lambda _, claim=claim: self._on_done(claim))
            self._was_full = len(claims) >= capacity
            if not self._was_full or not claims:
                with idle(), contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await self._wake_up.wait()

    async def prolong(self) -> None:
        """Prolongs the claims of running deliveries."""
        while True:
            await rest(self._settings.claim_s / _PROLONGS_PER_CLAIM)
            await self._outbox.prolong(list(self._running))

    async def drain(self) -> None:
        """Stops claiming, and waits for running deliveries."""
        self._draining = True
        async with self._claiming:
            pass  # a claim in progress starts deliveries, too
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._settings.timeout_s)
        await self._client.aclose()

    def _on_done(self, claim: Claim) -> None:
        del self._running[claim]
        if self._was_full:
            self._wake_up.set()

    async def _deliver(self, claim: Claim) -> None:
        at = datetime.now(UTC)
        try:
            try:
                answer = await self._attempt(claim, at)
            except RedisError:
                raise
            except Exception:
                logger.exception("a delivery failed in the sender itself")
                answer = Answer(None, _SENDER_FAILED, called=False)
            await self._record(claim, at, answer)
        except RedisError as problem:
            # The claim runs out, and the next attempt follows on schedule: a webhook may come twice, but comes.
            logger.warning("a delivery was not recorded: %s", type(problem).__name__)

    async def _record(self, claim: Claim, at: datetime, answer: Answer) -> None:
        attempt = AttemptRecord(at.timestamp(), answer.status, answer.error, answer.text, round(answer.took_s, 3))
        wait_s = self._outbox.retries.wait_s(claim.attempt, answer.retry_after_s, self._random)
        if answer.delivered:
            outcome = DeliveryOutcome.DELIVERED
        elif answer.is_final or wait_s is None:
            outcome = DeliveryOutcome.FAILED
        else:
            outcome = DeliveryOutcome.RETRY
        await self._outbox.record(claim, attempt, outcome, wait_s=wait_s or 0.0, health=answer.health)

    async def _attempt(self, claim: Claim, at: datetime) -> Answer:
        # Deleted tasks have webhooks, too.
        (task,) = await self._tasks.reads.get_many([claim.id])
        if task is None or task.webhook is None:
            return Answer(None, _TASK_GONE, called=False, is_final=True)
        dns_tenant.set(claim.organization)
        logs.bind(task=task.id, project=task.project, attempt=claim.attempt, trace=trace_id(task.traceparent))
        attributes = {"gen.task": task.id, "gen.project": task.project, "gen.queue": task.queue}
        try:
            with self._tracer.span(
                "webhook", task.traceparent, {**attributes, "gen.attempt": claim.attempt}, "client"
            ) as span:
                answer = await self._call(task, task.webhook, at, span.traceparent)
                if answer.status is not None:
                    span.note("http.response.status_code", answer.status)
                return answer
        except UnknownSealingKey:
            return Answer(None, _UNREADABLE, called=False, is_final=True)
        except UNREACHABLE as problem:
            logger.warning("a result's links could not be signed: %s", type(problem).__name__)
            return Answer(None, _NO_LINKS, called=False)

    async def _call(self, task: Task, webhook: Webhook, at: datetime, traceparent: str) -> Answer:
        if not webhook.url:
            raise UnknownSealingKey
        body = encode_body(await self._serializer.body(task, webhook.base))
        secret = self._sealer.open(webhook.secret) if webhook.secret else None
        headers = signature_headers(task.id, at, body, secret, self._plain_signatures)
        if traceparent:
            headers["traceparent"] = traceparent
        return await post(self._client, webhook.url, body, headers, self._settings.timeout_s)
