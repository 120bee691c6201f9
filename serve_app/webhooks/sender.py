"""The webhook sender: claims due deliveries, signs and posts them, records the answers.

Many at once, and any number of senders beside each other: they meet only in the outbox. One that dies leaves its claims
behind; they run out, and another sender tries again. So a destination may get a webhook twice, with the same
`webhook-id`, and never not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import Final

import httpx2
from redis.exceptions import RedisError
from standardwebhooks import Webhook

from deployments.contract.objects import UNREACHABLE
from deployments.telemetry import logs
from deployments.telemetry.tracing import OFF, Tracer, trace_id
from serve_app.background import idle, rest
from serve_app.encryption import Sealer, Unreadable
from serve_app.inputs.url_guard import AnswerRefused, UrlGuard, UrlRefused, connection_problem, dns_tenant
from serve_app.schemas.fields import decode_secret
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Task
from serve_app.tasks.views import ResultSerializer, encode_body
from serve_app.webhooks.outbox import Claim, DeliveryAttempt, Outbox, wait_s

logger = logging.getLogger(__name__)

RESPONSE_BYTES: Final = 1024
"""Of an answer's body."""
_BODY_S: Final = 1.0
"""Time limit for reading it: the status has already decided."""
_GONE: Final = 410
_BUSY: Final = 429
_CONTENT_TYPE: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int | None
    """None: there was no answer, and `error` says why."""
    error: str = ""
    text: str = ""
    """How its body begins; empty for an encoded one."""
    retry_after_s: float | None = None
    took_s: float = 0.0
    called: bool = True
    """Whether it came to a call."""

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        return self.status == _GONE

    @property
    def down(self) -> bool | None:
        """Whether the destination as a whole seems to be down or overloaded, rather than this one call refused; None
        without a call."""
        if not self.called:
            return None
        return self.status is None or self.status >= 500 or self.status == _BUSY


async def post(
    client: httpx2.AsyncClient, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
) -> Answer:
    """Never raises for what a destination does, or a network."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            response = await _call(client, url, body, headers)
        answer = await _read(response)
    except (TimeoutError, httpx2.TimeoutException):
        answer = Answer(None, f"no answer within {timeout_s:g} s")
    except (UrlRefused, AnswerRefused) as refusal:
        answer = Answer(None, str(refusal))
    except httpx2.ConnectError as error:
        answer = Answer(None, connection_problem(error))
    except (httpx2.HTTPError, httpx2.InvalidURL):
        answer = Answer(None, "the connection broke, or what came was not HTTP")
    return Answer(answer.status, answer.error, answer.text, answer.retry_after_s, time.monotonic() - began)


async def _call(client: httpx2.AsyncClient, url: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
    """Returns a response whose body is still to be read."""
    request_headers = {"content-type": _CONTENT_TYPE, "accept-encoding": "identity", **headers}
    return await client.send(client.build_request("POST", url, content=body, headers=request_headers), stream=True)


async def _read(response: httpx2.Response) -> Answer:
    """Closes the response after the beginning of its body, which may be late, broken or endless."""
    head = b""
    try:
        async with asyncio.timeout(_BODY_S):
            # Never unfolded: what a few kilobytes unfold to may hold up all other deliveries.
            async for part in response.aiter_raw():
                head += part
                if len(head) >= RESPONSE_BYTES:
                    break
    except (TimeoutError, AnswerRefused, httpx2.HTTPError):
        pass
    finally:
        await response.aclose()
    retry_after_s = _seconds(response.headers.get("retry-after", ""))
    text = head[:RESPONSE_BYTES].decode(errors="replace") if response.headers.get("content-encoding") is None else ""
    return Answer(response.status_code, text=text, retry_after_s=retry_after_s)


def _seconds(retry_after: str) -> float | None:
    """Seconds or a date, as RFC 9110 has it."""
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
    """For a delivery of `body` sent at `at`; `plain` names headers of the plainer form. Unsigned without a secret."""
    headers = {"webhook-id": webhook_id, "webhook-timestamp": str(int(at.timestamp()))}
    if not secret:
        return headers
    # The library takes any time for UTC, and only text; what it signs are the bytes that are sent.
    headers["webhook-signature"] = Webhook(decode_secret(secret)).sign(webhook_id, at.astimezone(UTC), body.decode())
    # Over the body alone, with the text of the secret as its destinations have it.
    digest = f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"
    return headers | dict.fromkeys(plain, digest)


USER_AGENT = "gen-serve-webhooks/1"
_SENDER_GONE = "the task is no longer kept"
_UNREADABLE_ERROR = "its address or secret was sealed with a key that is no longer among sealing.keys"
_NO_LINKS_ERROR = "the links of its results could not be made: the object store was out of reach"
_LOOK_EVERY_S = 0.5
_PROLONGS_PER_CLAIM = 3


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
        self._presenter = serializer
        self._sealer = sealer
        self._tracer = tracer
        self._plain_signatures = tuple(plain_signatures)
        self._random = Random()
        concurrency = outbox.policy.concurrency
        limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency // 4)
        self._client = guard.client(timeout=outbox.policy.timeout_s, limits=limits, headers={"user-agent": USER_AGENT})
        self._running: dict[Claim, asyncio.Task[None]] = {}
        self._look = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._draining = False
        self._more = False
        """The last claim took all that there was room for."""

    async def listen(self) -> None:
        """Hears of what is due. Lossy; `send` also looks by itself."""
        async with self._outbox.redis.pubsub() as pubsub:
            await pubsub.subscribe(self._outbox.channel)
            messages = pubsub.listen()
            while True:
                with idle():
                    await anext(messages)
                self._look.set()

    async def send(self) -> None:
        """Has as many deliveries on their way as are due and fit."""
        while True:
            self._look.clear()
            async with self._claiming:
                room = 0 if self._draining else self._outbox.policy.concurrency - len(self._running)
                claims = await self._outbox.claim(room) if room > 0 else []
                for claim in claims:
                    running = self._running[claim] = asyncio.create_task(self._deliver(claim))
                    running.add_done_callback(lambda _, claim=claim: self._on_done(claim))
            self._more = len(claims) >= room
            if not self._more or not claims:
                with idle(), contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_EVERY_S):
                        await self._look.wait()

    async def prolong(self) -> None:
        """Keeps the claims of what is still on its way."""
        while True:
            await rest(self._outbox.policy.claim_s / _PROLONGS_PER_CLAIM)
            await self._outbox.prolong(list(self._running))

    async def drain(self) -> None:
        """Claims no more, and waits for what is on its way."""
        self._draining = True
        async with self._claiming:
            pass  # what is just being claimed is on its way, too
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._outbox.policy.timeout_s)
        await self._client.aclose()

    def _on_done(self, claim: Claim) -> None:
        del self._running[claim]
        if self._more:
            self._look.set()

    async def _deliver(self, claim: Claim) -> None:
        try:
            await self._attempt(claim)
        except RedisError as problem:
            # The claim runs out, and the delivery is made again: rather twice than never.
            logger.warning("a delivery was not recorded: %s", type(problem).__name__)
        except Exception:
            logger.exception("a delivery failed in the sender itself")

    async def _attempt(self, claim: Claim) -> None:
        (task,) = await self._tasks.get_many([claim.id])  # it is told of, though it was deleted meanwhile
        if task is None or task.webhook is None:
            await self._outbox.record(claim, DeliveryAttempt(time.time(), error=_SENDER_GONE), "failed", down=None)
            return
        dns_tenant.set(task.project)
        logs.about(task=task.id, project=task.project, attempt=claim.attempt, trace=trace_id(task.traceparent))
        at = datetime.now(UTC)
        try:
            answer = await self._call_in_span(task, claim, at)
        except Unreadable:
            await self._outbox.record(
                claim, DeliveryAttempt(at.timestamp(), error=_UNREADABLE_ERROR), "failed", down=None
            )
            return
        except UNREACHABLE as problem:
            logger.warning("a result's links could not be signed: %s", type(problem).__name__)
            answer = Answer(None, _NO_LINKS_ERROR, called=False)
        attempt = DeliveryAttempt(at.timestamp(), answer.status, answer.error, answer.text, round(answer.took_s, 3))
        wait = wait_s(self._outbox.policy, claim.attempt, answer.retry_after_s, self._random)
        if answer.delivered:
            await self._outbox.record(claim, attempt, "delivered")
        elif answer.gone or wait is None:
            await self._outbox.record(claim, attempt, "failed", down=answer.down)
        else:
            await self._outbox.record(claim, attempt, "retry", wait_s=wait, down=answer.down)

    async def _call_in_span(self, task: Task, claim: Claim, at: datetime) -> Answer:
        attributes = {"gen.task": task.id, "gen.project": task.project, "gen.queue": task.queue}
        with self._tracer.span(
            "webhook", task.traceparent, {**attributes, "gen.attempt": claim.attempt}, "client"
        ) as span:
            answer = await self._call(task, at, span.traceparent)
            if answer.status is not None:
                span.note("http.response.status_code", answer.status)
            return answer

    async def _call(self, task: Task, at: datetime, traceparent: str) -> Answer:
        assert task.webhook is not None
        if not task.webhook.url:
            raise Unreadable
        body = encode_body(await self._presenter.body(task, task.webhook.base))
        secret = self._sealer.open(task.webhook.secret) if task.webhook.secret else None
        headers = signature_headers(task.id, at, body, secret, self._plain_signatures)
        if traceparent:
            headers["traceparent"] = traceparent
        return await post(self._client, task.webhook.url, body, headers, self._outbox.policy.timeout_s)
