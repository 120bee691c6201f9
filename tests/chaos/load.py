"""Clients, webhook destinations, and the journal of their responses and calls.

The requests depend on the seed alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import httpx2
from standardwebhooks import Webhook
from support.webhook_receiver import Received, Reply, WebhookReceiver, http_response
from support.webhook_receiver import receiving as serving

SIMULATED: Final = "gen-3-image-klein"
REAL: Final = "gen-2-pro-preview"
ENGINE: Final = "gen-2-pro"
TERMINAL: Final = frozenset({"Ready", "Error", "Request Moderated", "Content Moderated"})
DEAD: Final = "dead"
"""Never answers until it is revived."""
BEHAVIOURS: Final = ("healthy", "slow", "failing", "hanging", "redirecting", "skewed", DEAD)
MANNERS: Final = ("patient", "hangs up", "cancels")
_SECRET: Final = "the secret of all destinations"
_SKEW, _TOLERANCE = timedelta(minutes=4), timedelta(minutes=5)
"""Delay of a skewed clock, and the difference that destinations tolerate."""
_LONGEST_WAIT_S: Final = 10
_RETRY_S: Final = 0.3
_PATIENCE_S: Final = 180.0
"""Seconds for which a client retries a submission or waits for a task's end."""


@dataclass(slots=True)
class TaskRecord:
    """One accepted task from its client's view."""

    id: str
    hook: str = ""
    """The destination's behaviour; empty without a webhook."""
    cancelled: bool = False
    """True if its client tried to cancel it."""
    polls: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Journal:
    accepted: dict[str, TaskRecord] = field(default_factory=dict)
    refused: list[httpx2.Response] = field(default_factory=list)
    """Error responses to submissions, all of which were valid."""
    unclear: list[tuple[str, str]] = field(default_factory=list)
    """The current fault and the text of each 5xx response without Retry-After."""
    calls: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Bodies by webhook-id."""
    delivered: set[str] = field(default_factory=set)
    """Webhook-ids that a destination answered with 2xx."""
    forged: list[str] = field(default_factory=list)
    """Descriptions of calls with a wrong signature."""
    faults: list[tuple[str, float | None]] = field(default_factory=list)
    """Each fault with its recovery time in seconds; None if the service did not recover."""
    backlog: int = 0
    """Webhooks that waited for the dead destination when it was revived."""
    delayed: list[str] = field(default_factory=list)
    """Webhook-ids that still waited for other destinations at that moment."""
    fault: str = "nothing"
    """Name of the current or last fault."""

    def list_undelivered(self, *, dead: bool) -> list[str]:
        hooked = (record for record in self.accepted.values() if record.hook and (record.hook == DEAD) == dead)
        return [record.id for record in hooked if record.id not in self.delivered]


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """A task that a client will send at a given time, and how it will poll."""

    at_s: float
    endpoint: str
    hook: str
    manner: str
    steps: int
    seed: int
    key: str
    wait_s: int


def schedule_requests(seed: int, tasks: int, seconds: float) -> list[ScheduledRequest]:
    """Returns `tasks` requests at random moments of `seconds`, in order. A few are for other models."""
    random = Random(f"offers {seed}")
    return [
        ScheduledRequest(
            at_s,
            random.choices((SIMULATED, REAL, ENGINE), (0.92, 0.03, 0.05))[0],
            random.choice(BEHAVIOURS) if random.random() < 0.5 else "",
            random.choices(MANNERS, (0.85, 0.1, 0.05))[0],
            random.randint(2, 16),
            random.randrange(2**32),
            str(uuid.UUID(int=random.getrandbits(128))),
            random.choice((0, 0, 0, 2, _LONGEST_WAIT_S)),
        )
        for at_s in sorted(random.uniform(0, seconds) for _ in range(tasks))
    ]


def canaries(seed: int) -> Iterator[ScheduledRequest]:
    """Yields small simulated tasks with a webhook to a healthy destination."""
    random = Random(f"canaries {seed}")
    while True:
        number, key = random.randrange(2**32), str(uuid.UUID(int=random.getrandbits(128)))
        yield ScheduledRequest(0.0, SIMULATED, "healthy", MANNERS[0], 2, number, key, 0)


class ScriptedReceiver(WebhookReceiver):
    """Misbehaves at the first call of each delivery and accepts the second; a dead one accepts none."""

    def __init__(self, behaviour: str, journal: Journal) -> None:
        super().__init__()
        self.dead = behaviour == DEAD
        self._behaviour = behaviour
        self._journal = journal
        self._called: Counter[str] = Counter()

    def reply_to(self, call: Received) -> Reply:
        self._check(call)
        self._journal.calls[call.id].append(json.loads(call.body))
        self._called[call.id] += 1
        if self.dead or (self._behaviour == "hanging" and self._called[call.id] == 1):
            return self.hang
        if self._called[call.id] == 1:
            if self._behaviour == "failing":
                return http_response(500)
            if self._behaviour == "redirecting":
                return http_response(307, location="http://127.0.0.1:1/elsewhere")
        self._journal.delivered.add(call.id)
        return _answer_late if self._behaviour == "slow" else http_response(204)

    def _check(self, call: Received) -> None:
        """Checks the signature by Standard Webhooks and this destination's own clock."""
        at = datetime.fromtimestamp(int(call.headers["webhook-timestamp"]), UTC)
        clock = datetime.now(UTC) - (_SKEW if self._behaviour == "skewed" else timedelta())
        signed = Webhook(_SECRET.encode()).sign(call.id, at, call.body.decode())
        if signed != call.headers["webhook-signature"] or abs(clock - at) > _TOLERANCE:
            self._journal.forged.append(f"{call.id} at {at}")


async def _answer_late(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(1)
    writer.write(http_response(204))


@asynccontextmanager
async def receiving(journal: Journal) -> AsyncIterator[dict[str, ScriptedReceiver]]:
    """Runs one destination of each behaviour."""
    destinations = {behaviour: ScriptedReceiver(behaviour, journal) for behaviour in BEHAVIOURS}
    async with AsyncExitStack() as stack:
        for destination in destinations.values():
            await stack.enter_async_context(serving(destination=destination))
        yield destinations


@dataclass(slots=True)
class Clients:
    """Sends tasks, follows them each in its own manner, and records every response."""

    destinations: Mapping[str, ScriptedReceiver]
    journal: Journal
    canaries: Iterator[ScheduledRequest]

    async def send(self, http: httpx2.AsyncClient, requests: Sequence[ScheduledRequest]) -> None:
        """Sends each request at its time, and returns once all tasks have ended."""
        start = time.monotonic()
        async with asyncio.TaskGroup() as following:
            for request in requests:
                await asyncio.sleep(max(0.0, start + request.at_s - time.monotonic()))
                following.create_task(self._run_task(http, request))

    async def run_canary(self, http: httpx2.AsyncClient) -> None:
        """Runs a task with a webhook until it is ready and delivered."""
        record = await self._run_task(http, next(self.canaries))
        if record is None:
            raise TimeoutError("no task was accepted")
        async with asyncio.timeout(_PATIENCE_S):
            while record.id not in self.journal.delivered:
                await asyncio.sleep(0.05)

    async def _run_task(self, http: httpx2.AsyncClient, request: ScheduledRequest) -> TaskRecord | None:
        if (record := await self._submit(http, request)) is None:
            return None
        with contextlib.suppress(httpx2.HTTPError):
            if request.manner == "hangs up":  # in the middle of a poll
                await http.get("/v1/get_result", params={"id": record.id, "wait": _LONGEST_WAIT_S}, timeout=0.05)
            elif request.manner == "cancels":
                record.cancelled = True  # the response can be lost
                await http.delete(f"/v1/tasks/{record.id}")
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and not await self._poll(http, record, request.wait_s):
            await asyncio.sleep(_RETRY_S)
        return record

    async def _submit(self, http: httpx2.AsyncClient, request: ScheduledRequest) -> TaskRecord | None:
        """Retries with one idempotency key until the task is accepted or rejected."""
        body: dict[str, Any] = {"prompt": "a red star", "width": 256, "height": 256, "seed": request.seed}
        body |= {"steps": request.steps} if request.endpoint == SIMULATED else {"disable_pup": True}
        if request.hook:
            body |= {"webhook_url": self.destinations[request.hook].url(), "webhook_secret": _SECRET}
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx2.HTTPError):
                answer = await http.post(f"/v1/{request.endpoint}", json=body, headers={"Idempotency-Key": request.key})
                if answer.status_code == 200:
                    record = TaskRecord(answer.json()["id"], request.hook)
                    self.journal.accepted[record.id] = record
                    return record
                self._note(answer)
                self.journal.refused.append(answer)
                if answer.status_code not in (429, 500, 502, 503, 504):
                    return None
            await asyncio.sleep(_RETRY_S)
        return None

    async def _poll(self, http: httpx2.AsyncClient, record: TaskRecord, wait_s: int) -> bool:
        with contextlib.suppress(httpx2.HTTPError):
            answer = await http.get("/v1/get_result", params={"id": record.id, "wait": wait_s})
            if answer.status_code == 200:
                record.polls.append(answer.json())
                return record.polls[-1]["status"] in TERMINAL
            self._note(answer)
        return False

    def _note(self, answer: httpx2.Response) -> None:
        if answer.status_code >= 500 and "retry-after" not in answer.headers:
            self.journal.unclear.append((self.journal.fault, f"HTTP {answer.status_code}: {answer.text[:200]}"))


def connect(base_url: str, key: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx2.AsyncClient(base_url=base_url, headers={"x-key": key}, timeout=25, limits=limits, trust_env=False)
