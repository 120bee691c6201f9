"""The outbox: webhooks of ended tasks, kept until they are delivered or have failed.

A delivery is written by the step that ends its task (`tasks/outbox.lua`), and has the task's id.

| key | kind | holds |
|---|---|---|
| `gen:outbox` | zset | destinations by the time of their next check, ms |
| `gen:outbox:{destination}` | zset | deliveries that wait, by their next attempt, ms |
| `gen:sending:{destination}` | zset | deliveries that a sender has claimed, by the end of its claim, ms |
| `gen:calls:{organization}` | zset | claimed deliveries of all its destinations, by the end of the claim, ms |
| `gen:destination:{destination}` | hash | `concurrency`; `failures` in a row, `open_until` ms, `times_opened` if down |
| `gen:delivery:{id}` | hash | `state destination attempts claim created since next finished again` (ms) |
| `gen:attempts:{id}` | list | the last attempts as JSON: `at status error text took_s` |
| `gen:deliveries` | zset | all deliveries, by when they were first due |
| `gen:undelivered` | zset | failed deliveries, by when they failed |
| `gen:pending` | zset | deliveries that wait or are being sent, by `since` |
| `gen:delivered` | hash | counts: `delivered failed put_off`, and the delivery times: `tasks/queue_load.py` |
| `gen:outbox` | pub/sub | something is due. Messages can be lost: senders poll, too |

A destination is a `WebhookDestination`: an origin, as one organization calls it. Its deliveries fail together, and
hinder no others. Where settings seal what clients wrote, `error` and `text` of attempts are sealed.

Invariants, each held by every script:
1. A delivery is in exactly one of `outbox:{destination}` and `sending:{destination}` while it waits or is sent, and in
   neither afterwards.
2. `claim` grows at every claim. A claim that is not the latest records nothing, so one attempt counts once.
3. A claim that runs out is an attempt, and its delivery keeps the retry schedule: one that kills its sender ends, too.
4. A destination with anything waiting or claimed is in `outbox`.
5. Records, like tasks, are deleted when their retention is over, but not before the delivery has ended.
6. A delivery is in `pending` exactly while it waits or is being sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, cast

from redis.asyncio import Redis

from deployments.contract.counts import Histogram
from serve_app.config.settings import WebhookSettings
from serve_app.encryption import IN_CLEAR, AtRest, UnknownSealingKey
from serve_app.storage.pages import page
from serve_app.storage.scripts import Scripts, call_id, concat_scripts, milliseconds
from serve_app.tasks.queue_load import BUCKETS
from serve_app.tasks.scripts import OUTBOX
from serve_app.tasks.task import WebhookDestination
from serve_app.webhooks.policy import CircuitPolicy, RetrySchedule

_HERE: Final = Path(__file__).parent
_UNREADABLE: Final = "the answer was sealed with a key that is no longer among sealing.keys"
_QUICK_S: Final = 1.0
"""Seconds within which a destination has to answer to get more calls at a time."""
_COUNTED: Final = ("delivered", "failed", "put_off")


class DeliveryState(StrEnum):
    WAITING = "waiting"
    SENDING = "sending"
    DELIVERED = "delivered"
    FAILED = "failed"


class DeliveryOutcome(StrEnum):
    """Outcome of an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    FAILED = "failed"


class DestinationHealth(StrEnum):
    """Health of the destination as a whole, as one attempt saw it."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"
    """Health after an attempt without a call."""


class RecordOutcome(StrEnum):
    RECORDED = "recorded"
    CLAIM_LOST = "claim_lost"


class ReplayOutcome(StrEnum):
    DUE = "due"
    AFTER_ATTEMPT = "after_attempt"
    """The delivery is being sent; it starts again if that fails."""
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to make one attempt at a delivery."""

    id: str
    number: int
    attempt: int
    """Number of the attempt, from 1; a replay starts from 1 again."""
    organization: str


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    at: float
    """Epoch seconds."""
    status: int | None = None
    error: str = ""
    text: str = ""
    """Beginning of the destination's answer."""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """Times in epoch seconds."""

    id: str
    state: DeliveryState
    destination: WebhookDestination
    attempts: int
    created: float
    next: float | None
    finished: float | None
    log: tuple[AttemptRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    deliveries: int
    """Deliveries that wait or are being sent."""
    oldest_s: float
    """Age of the oldest of them in seconds."""


class Outbox:
    def __init__(
        self, redis: Redis, prefix: str, settings: WebhookSettings | None = None, at_rest: AtRest = IN_CLEAR
    ) -> None:
        """`redis` must decode responses."""
        self.redis = redis
        self.settings = settings or WebhookSettings()
        self.retries = RetrySchedule.from_settings(self.settings)
        self._circuit = asdict(CircuitPolicy.from_settings(self.settings))
        self._prefix = prefix
        self._at_rest = at_rest
        self._scripts = Scripts(redis, prefix, _source)

    @property
    def channel(self) -> str:
        return f"{self._prefix}outbox"

    # Sending

    async def claim(self, n: int) -> list[Claim]:
        """Claims up to `n` deliveries that are due, fairly among destinations and organizations."""
        claims = await self._run(
            "claim",
            call_id=call_id(),
            limit=n,
            claim_ms=milliseconds(self.settings.claim_s),
            schedule_ms=[milliseconds(wait_s) for wait_s in self.retries.waits_s],
            max_age_ms=milliseconds(self.retries.max_age_s),
            lost_entry=_entry(AttemptRecord(time.time(), error="the sender was lost on the way")),
            expired_entry=_entry(AttemptRecord(time.time(), error="the destination was never back")),
            circuit=self._circuit,
        )
        return [Claim(**claim) for claim in claims]

    async def prolong(self, claims: Sequence[Claim]) -> None:
        if claims:
            latest = [{"id": claim.id, "number": claim.number} for claim in claims]
            await self._run("prolong", claim_ms=milliseconds(self.settings.claim_s), claims=latest)

    async def record(
        self,
        claim: Claim,
        attempt: AttemptRecord,
        outcome: DeliveryOutcome,
        *,
        wait_s: float = 0.0,
        health: DestinationHealth = DestinationHealth.UP,
    ) -> bool:
        """Records an attempt. Returns False, and changes nothing, if the claim has run out."""
        reply = await self._run(
            "record",
            id=claim.id,
            claim=claim.number,
            outcome=outcome,
            wait_ms=milliseconds(wait_s),
            entry=_entry(self._seal(attempt)),
            health=health,
            is_quick=outcome is DeliveryOutcome.DELIVERED and attempt.took_s < _QUICK_S,
            circuit=self._circuit,
        )
        return RecordOutcome(reply["outcome"]) is RecordOutcome.RECORDED

    async def replay(self, task_id: str) -> bool:
        """Starts a delivery again, now and with all its attempts. Returns False if the task has none."""
        reply = await self._run("replay", id=task_id)
        return ReplayOutcome(reply["outcome"]) is not ReplayOutcome.NOT_FOUND

    # Reading

    async def get(self, task_id: str) -> Delivery | None:
        [delivery] = await self._get_many([task_id])
        return delivery

    async def list_deliveries(
        self, *, limit: int, cursor: str | None = None, failed: bool = False
    ) -> tuple[list[Delivery], str | None]:
        """Returns a page, newest first, and the cursor of the next; with `failed` only those that failed.

        Raises ValueError for a bad cursor.
        """
        index = f"{self._prefix}{'undelivered' if failed else 'deliveries'}"
        ids, following = await page(self.redis, index, limit, cursor)
        return [delivery for delivery in await self._get_many(ids) if delivery], following

    async def backlog(self) -> Backlog:
        reply = await self._run("backlog")
        return Backlog(reply["deliveries"], reply["oldest_ms"] / 1000)

    async def count_outcomes(self) -> tuple[dict[str, int], Histogram]:
        """Returns the counts of attempts, `delivered failed put_off`, and the delays of those delivered."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(f"{self._prefix}delivered"))
        return {name: int(raw.get(name, 0)) for name in _COUNTED}, BUCKETS.read("delay", raw)

    async def _get_many(self, ids: Sequence[str]) -> list[Delivery | None]:
        pipe = self.redis.pipeline(transaction=False)
        for task_id in ids:
            pipe.hgetall(f"{self._prefix}delivery:{task_id}")
            pipe.lrange(f"{self._prefix}attempts:{task_id}", 0, -1)
        rows = await pipe.execute() if ids else []
        return [self._delivery(task_id, *rows[2 * n : 2 * n + 2]) for n, task_id in enumerate(ids)]

    def _delivery(self, task_id: str, raw: Mapping[str, str], log: Sequence[str]) -> Delivery | None:
        if not raw:
            return None

        def seconds(name: str) -> float | None:
            return float(raw[name]) / 1000 if name in raw else None

        return Delivery(
            id=task_id,
            state=DeliveryState(raw["state"]),
            destination=WebhookDestination.decode(raw["destination"]),
            attempts=int(raw["attempts"]),
            created=seconds("created") or 0.0,
            next=seconds("next"),
            finished=seconds("finished"),
            log=tuple(self._open(AttemptRecord(**json.loads(entry))) for entry in log),
        )

    def _seal(self, attempt: AttemptRecord) -> AttemptRecord:
        """Seals the texts: destinations repeat request bodies, and errors name hosts."""
        return replace(attempt, error=self._at_rest.seal(attempt.error), text=self._at_rest.seal(attempt.text))

    def _open(self, attempt: AttemptRecord) -> AttemptRecord:
        try:
            return replace(attempt, error=self._at_rest.open(attempt.error), text=self._at_rest.open(attempt.text))
        except UnknownSealingKey:
            return replace(attempt, error=_UNREADABLE, text="")

    async def _run(self, name: str, **fields: Any) -> Any:
        return await self._scripts.call(name, **fields)


def _source(name: str) -> str:
    return concat_scripts(*OUTBOX, _HERE / "circuit_breaker.lua", _HERE / f"{name}.lua")


def _entry(attempt: AttemptRecord) -> str:
    return json.dumps(asdict(attempt))
