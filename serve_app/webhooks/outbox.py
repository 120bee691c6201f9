"""The outbox: webhooks of ended tasks, kept until they are delivered or given up.

A delivery is written by the step that ends its task (`tasks/outbox.lua`), and has the task's id.

| key | kind | holds |
|---|---|---|
| `gen:outbox` | zset | destinations by when somebody has to look at them next, ms |
| `gen:outbox:{destination}` | zset | deliveries that wait, by their next try, ms |
| `gen:sending:{destination}` | zset | deliveries that a sender has claimed, by the end of its claim, ms |
| `gen:calls:{organization}` | zset | the same of all its destinations |
| `gen:destination:{destination}` | hash | `concurrency`; `failures` in a row, `open_until` ms, `times_opened` if down |
| `gen:delivery:{id}` | hash | `state destination attempts claim created since next finished again` (ms) |
| `gen:attempts:{id}` | list | the last attempts as JSON: `at status error text took_s` |
| `gen:deliveries` | zset | all that are kept, by when they were first due |
| `gen:undelivered` | zset | those that failed for good, by when |
| `gen:pending` | zset | those that wait or are being sent, by `since` |
| `gen:delivered` | hash | counts: `delivered failed put_off`, and how long those delivered took: `tasks/views.py` |
| `gen:outbox` | pub/sub | something is due. Lossy: senders look by themselves, too |

A destination is scheme, host and port, as one organization calls them: they fail together, and for nobody else; where
settings seal what clients wrote, their keyed hash, and `error` and `text` are sealed. States are `waiting`, `sending`,
`delivered`, `failed`.

Invariants, each held by every script:
1. A delivery is in exactly one of `outbox:{destination}` and `sending:{destination}` while it waits or is sent, and in
   neither afterwards.
2. `claim` grows at every claim. What names another claim records nothing, so one attempt counts once.
3. A claim that runs out is an attempt: a delivery that kills its sender ends, too.
4. A destination with anything waiting or claimed is in `outbox`.
5. Records, like tasks, are deleted when their retention is over, but not before the delivery has ended.
6. A delivery is in `pending` exactly while it waits or is being sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias, cast

from redis.asyncio import Redis

from deployments.contract.counts import Histogram
from serve_app.config.settings import WebhookSettings
from serve_app.encryption import IN_CLEAR, AtRest, Unreadable
from serve_app.storage.pages import page
from serve_app.storage.scripts import Scripts, call_id, concat_scripts, milliseconds
from serve_app.tasks.scripts import OUTBOX
from serve_app.tasks.views import BUCKETS

_HERE: Final = Path(__file__).parent
_UNREADABLE: Final = "what came of it was sealed with a key that is no longer among sealing.keys"
_QUICK_S: Final = 1.0
"""A destination that takes longer for its answers gets no more calls at a time."""
_OUTCOMES: Final = ("delivered", "failed", "put_off")

Outcome: TypeAlias = Literal["delivered", "retry", "failed"]


class State(StrEnum):
    WAITING = "waiting"
    SENDING = "sending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to make one attempt at a delivery."""

    id: str
    number: int
    attempt: int
    """From 1; a replay begins anew."""


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    at: float
    """Epoch seconds."""
    status: int | None = None
    error: str = ""
    text: str = ""
    """How the destination's answer begins."""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """Times in epoch seconds."""

    id: str
    state: State
    destination: str
    attempts: int
    created: float
    next: float | None
    finished: float | None
    log: tuple[DeliveryAttempt, ...] = ()


class Outbox:
    def __init__(
        self, redis: Redis, prefix: str, policy: WebhookSettings | None = None, at_rest: AtRest = IN_CLEAR
    ) -> None:
        """`redis` must decode responses."""
        self.redis = redis
        self.policy = policy or WebhookSettings()
        self._prefix = prefix
        self._at_rest = at_rest
        self._scripts = Scripts(redis, prefix, _source)

    @property
    def channel(self) -> str:
        return f"{self._prefix}outbox"

    # Sending

    async def claim(self, n: int) -> list[Claim]:
        """Up to `n` deliveries that are due, fairly among destinations and organizations."""
        policy = self.policy
        rows = await self._run(
            "claim",
            call_id(),
            n,
            policy.per_destination,
            policy.per_organization,
            milliseconds(policy.claim_s),
            milliseconds(max_age_s(policy)),
            max_attempts(policy),
            policy.failure_threshold,
            _entry(DeliveryAttempt(time.time(), error="the sender was lost on the way")),
            _entry(DeliveryAttempt(time.time(), error="the destination was never back")),
        )
        return [Claim(task_id, int(number), int(attempt)) for task_id, number, attempt in rows]

    async def prolong(self, claims: Sequence[Claim]) -> None:
        if claims:
            flat = [part for claim in claims for part in (claim.id, claim.number)]
            await self._run("prolong", milliseconds(self.policy.claim_s), *flat)

    async def record(
        self,
        claim: Claim,
        attempt: DeliveryAttempt,
        outcome: Outcome,
        *,
        wait_s: float = 0.0,
        down: bool | None = False,
    ) -> bool:
        """Notes how it went. False for a claim that ran out meanwhile: then nothing is noted.

        `down` is whether the destination as a whole seems to be down; None when it was not even called.
        """
        policy = self.policy
        done = await self._run(
            "record",
            claim.id,
            claim.number,
            outcome,
            milliseconds(wait_s),
            _entry(self._seal(attempt)),
            "" if down is None else int(down),
            policy.per_destination,
            policy.failure_threshold,
            milliseconds(policy.circuit_open_s),
            milliseconds(policy.max_circuit_open_s),
            int(outcome == "delivered" and attempt.took_s < _QUICK_S),
            policy.per_organization,
        )
        return done == 1

    async def replay(self, task_id: str) -> bool:
        """Has a delivery made again, now and with all its attempts. False when there is none for that task."""
        return await self._run("replay", task_id) != 0

    # Looking

    async def get(self, task_id: str) -> Delivery | None:
        [delivery] = await self._get_many([task_id])
        return delivery

    async def list_deliveries(
        self, *, limit: int, cursor: str | None = None, failed: bool = False
    ) -> tuple[list[Delivery], str | None]:
        """Newest first, and the cursor of the next page; only those given up if `failed`. ValueError: a bad cursor."""
        index = f"{self._prefix}{'undelivered' if failed else 'deliveries'}"
        ids, following = await page(self.redis, index, limit, cursor)
        return [delivery for delivery in await self._get_many(ids) if delivery], following

    async def backlog(self) -> tuple[int, float]:
        """How many deliveries are on their way, and for how many seconds the oldest of them."""
        deliveries, oldest = await self._run("backlog")
        return deliveries, oldest / 1000

    async def count_outcomes(self) -> tuple[dict[str, int], Histogram]:
        """Counts of what came of attempts: `delivered failed put_off`; and how long those delivered took."""
        raw = await cast(Awaitable[dict[str, str]], self.redis.hgetall(f"{self._prefix}delivered"))
        return {name: int(raw.get(name, 0)) for name in _OUTCOMES}, BUCKETS.read("delay", raw)

    async def _get_many(self, ids: Sequence[str]) -> list[Delivery | None]:
        pipe = self.redis.pipeline(transaction=False)
        for task_id in ids:
            pipe.hgetall(f"{self._prefix}delivery:{task_id}")
            pipe.lrange(f"{self._prefix}attempts:{task_id}", 0, -1)
        rows = await pipe.execute() if ids else []
        return [self._delivery(task_id, *rows[2 * n : 2 * n + 2]) for n, task_id in enumerate(ids)]

    def _delivery(self, task_id: str, raw: dict[str, str], log: list[str]) -> Delivery | None:
        if not raw:
            return None

        def seconds(name: str) -> float | None:
            return float(raw[name]) / 1000 if name in raw else None

        return Delivery(
            id=task_id,
            state=State(raw["state"]),
            destination=raw["destination"],
            attempts=int(raw["attempts"]),
            created=seconds("created") or 0.0,
            next=seconds("next"),
            finished=seconds("finished"),
            log=tuple(self._unseal(DeliveryAttempt(**json.loads(entry))) for entry in log),
        )

    def _seal(self, attempt: DeliveryAttempt) -> DeliveryAttempt:
        """Destinations repeat what they are sent, and errors name hosts."""
        return replace(attempt, error=self._at_rest.seal(attempt.error), text=self._at_rest.seal(attempt.text))

    def _unseal(self, attempt: DeliveryAttempt) -> DeliveryAttempt:
        try:
            return replace(attempt, error=self._at_rest.open(attempt.error), text=self._at_rest.open(attempt.text))
        except Unreadable:
            return replace(attempt, error=_UNREADABLE, text="")

    async def _run(self, name: str, *args: Any) -> Any:
        return await self._scripts.run(name, ["", *args])


def _source(name: str) -> str:
    return concat_scripts(*OUTBOX, _HERE / "circuit_breaker.lua", _HERE / f"{name}.lua")


def _entry(attempt: DeliveryAttempt) -> str:
    return json.dumps(asdict(attempt))


_MAX_RETRY_AFTER_S = 24 * 3600
"""How long a destination may put a delivery off at a time."""
_AGE = 1.5
"""Times the whole schedule: how old a delivery may get whose destination has no time for it."""


def max_attempts(settings: WebhookSettings) -> int:
    return len(settings.schedule_s) + 1


def max_age_s(settings: WebhookSettings) -> float:
    return _AGE * (sum(settings.schedule_s) + settings.timeout_s * max_attempts(settings))


def wait_s(settings: WebhookSettings, attempt: int, retry_after_s: float | None, random: Random) -> float | None:
    """How long to wait after the failed attempt of this number, from 1; None: that was the last one.

    Waits differ by up to `jitter` of them, so that what failed together is not repeated together.
    """
    if attempt > len(settings.schedule_s):
        return None
    wait = settings.schedule_s[attempt - 1] * (1 + settings.jitter * random.uniform(-1, 1))
    return max(wait, min(retry_after_s or 0, _MAX_RETRY_AFTER_S))
