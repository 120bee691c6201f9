"""The task store: what is accepted is kept, in one Redis, by atomic steps.

Structures (`gen:` stands for the configured prefix, `{lane}` for the queue of one model deployment):

| key | kind | holds |
|---|---|---|
| `gen:task:{id}` | hash | the task, field by field below |
| `gen:queued:{lane}` | zset | waiting tasks by virtual start time (start-time fair queueing over projects) |
| `gen:suspects:{lane}` | zset | waiting tasks that lost two workers; leased few at a time and run alone |
| `gen:isolated:{lane}` | set | suspects that are leased now |
| `gen:leased:{lane}` | zset | leased tasks by the end of their lease, ms |
| `gen:deadlines:{lane}` | zset | every task that has not ended, by its present deadline, ms |
| `gen:clock:{lane}` | string | virtual time: the largest start time leased so far |
| `gen:fair:{lane}` | zset | projects by the virtual end of their last task; those in the past are forgotten |
| `gen:stats:{lane}` | hash | counters: `accepted`, each outcome, `put_back strikes reaped refused cancelled` |
| `gen:timings:{lane}` | hash | histograms of how long tasks waited and took: `timings.py` |
| `gen:active:{project}` | zset | tasks that have not ended, by submission |
| `gen:tasks:{project}` | zset | all tasks that are still kept, by submission |
| `gen:idempotency:{project}:{hash}` | hash | `body id reply` of a request sent with an idempotency key; expires |
| `gen:retention` | zset | ids by when their record and objects go: ended tasks, and reservations never submitted |
| `gen:rate:{key id}` | string | when a key's next request is due, ms; expires then |
| `gen:wake:{lane}` `gen:done` `gen:stop` | pub/sub | work came; a task ended; work must stop. Lossy: all poll too |

Money moves in the same steps: `accounts/credits.py` names its structures. A submission reads the limits of its project
from `gen:project:{id}`. The step that ends a task with a webhook also makes its delivery due: `webhooks/outbox.py`.

A task's hash: who and what (`id lane organization project endpoint key_id user job`), where it stands
(`status attempt strikes losses published_by`), its turn (`vt share`, in virtual time), times in ms (`created
started finished`), what came of it (`progress preview result details`), its price while it is `held` and its `cost`
once it is ready, whom to tell (`webhook_url webhook_receiver webhook_base webhook_secret`).
`job` is the record of `tasks/job.py`, `preview`, `result` and `details` are JSON; money is in milli-credits.

Invariants, each held by every script:
1. A task that has not ended is in `deadlines` and in exactly one of `queued`, `suspects`, `leased`; one that ended is
   in none of them and in `retention`.
2. `attempt` grows at every lease and at nothing else. A step that names another attempt changes nothing.
3. A terminal status never changes. One attempt publishes, once; repeating a step is harmless.
4. `strikes` grows only when a worker or dispatcher was lost with the task. Cancel, drain and release cost none.
5. Times are Redis' own (`TIME`); no two clocks are compared.
6. The price of a task is held exactly while the task has not ended. Then it is settled, or given back, once.

Scripts build key names from ids, so all keys of one prefix live on one server.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, cast

from redis.asyncio import Redis

from serve_app.redis_store.scripts import Scripts
from serve_app.tasks.limits import IdempotencyMismatch, Limits, refusal
from serve_app.tasks.reader import TaskReader
from serve_app.tasks.scripts import source
from serve_app.tasks.task import Accepted, Lease, NewTask, Status

_GIVEN_UP = "The task lost its worker too many times and was given up"

RESERVATION_S = 3600
"""How long inputs may wait in the object store for their submission before they are swept."""


class TaskStore(TaskReader):
    def __init__(self, redis: Redis, prefix: str = "gen:", limits: Limits | None = None) -> None:
        """`redis` must decode responses."""
        super().__init__(redis, prefix)
        self.limits = limits or Limits()
        self._scripts = Scripts(redis, prefix, source)

    # Submission

    async def reserve(self, task_id: str) -> None:
        """Notes that objects of a task not yet submitted are about to be stored, so that a crash leaves no orphans."""
        now = await self._now()
        await cast(Awaitable[int], self.redis.zadd(self._key("retention"), {task_id: (now + RESERVATION_S) * 1000}))

    async def submit(self, task: NewTask) -> Accepted:
        """Creates and queues the task, and holds its price. Raises a kind of Refused; then nothing was written."""
        limits = self.limits
        fields = {
            "job": task.job,
            "user": task.user,
            **(task.webhook.as_fields() if task.webhook else {}),
        }
        idempotency = self._idempotency_key(task.project, task.idempotency_key) if task.idempotency_key else ""
        code, *rest = await self._run(
            "submit",
            task.lane,
            [
                task.id,
                task.project,
                task.work,
                task.weight,
                limits.max_queued,
                limits.max_active,
                _ms(limits.queue_s),
                _ms(limits.idempotency_s),
                idempotency,
                task.body_hash,
                task.reply,
                task.organization,
                task.price,
                task.endpoint,
                task.key_id,
                1000 / limits.requests_per_s,
                limits.burst,
                *_flat({name: value for name, value in fields.items() if value != ""}),
            ],
        )
        if code == 0:
            raise refusal(*rest)
        if code == 3:
            raise IdempotencyMismatch
        return Accepted(rest[0], created=code == 1, requests_left=rest[1] if code == 1 else None)

    async def submitted(self, project: str, idempotency_key: str, body_hash: str) -> str | None:
        """The reply to an earlier submission with this key, None when there was none. Raises IdempotencyMismatch.

        Spares a repeated request its work; `submit` decides all the same, so that parallel ones make one task.
        """
        key = self._idempotency_key(project, idempotency_key)
        body, reply = await cast(Awaitable[list[str | None]], self.redis.hmget(key, "body", "reply"))
        if body is not None and body != body_hash:
            raise IdempotencyMismatch
        return reply

    async def cancel(self, task_id: str, project: str) -> int:
        """Returns 1 when this cancelled the task, 2 when it had ended already, 0 when the project has no such task."""
        lane = await self._lane_of(task_id)
        if lane is None:
            return 0
        return await self._run("cancel", lane, [task_id, project, self._retention])

    # Work

    async def lease(self, lane: str, n: int, max_leased: int) -> list[Lease]:
        """Up to `n` tasks, such that at most `max_leased` of the lane are leased in all."""
        limits = self.limits
        rows = await self._run("lease", lane, [n, max_leased, _ms(limits.lease_s), limits.max_isolated])
        return [Lease(i, int(a), s == 1, int(created) / 1000, job) for i, a, s, created, job in rows]

    async def heartbeat(self, lane: str, held: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Prolongs the leases of these (id, attempt). Returns those that are no longer held."""
        if not held:
            return []
        args = [_ms(self.limits.lease_s), *(part for pair in held for part in pair)]
        return [held[int(position)] for position in await self._run("heartbeat", lane, args)]

    async def advance(
        self,
        lane: str,
        task_id: str,
        attempt: int,
        status: Status,
        progress: float | None = None,
        preview: Mapping[str, Any] | None = None,
        run_s: float | None = None,
    ) -> bool:
        """Moves phase and progress forward; `run_s` in place of the limit counts from the first start of work.

        False: the attempt is stale.
        """
        args = [
            task_id,
            attempt,
            status.value,
            "" if progress is None else f"{progress:.4f}",
            "" if preview is None else json.dumps(preview),
            _ms(run_s or self.limits.run_s),
        ]
        return await self._run("advance", lane, args) == 1

    async def complete(
        self,
        lane: str,
        task_id: str,
        attempt: int,
        status: Status,
        *,
        result: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
        cost: int | None = None,
    ) -> bool:
        """Publishes the outcome. True when this attempt published it, now or in an earlier try; False when refused."""
        if not status.terminal:
            raise ValueError(f"{status} is no outcome")
        fields: dict[str, Any] = {}
        if result is not None:
            fields["result"] = json.dumps(result)
        if details is not None:
            fields["details"] = json.dumps(details)
        if cost is not None:
            fields["cost"] = cost
        args = [task_id, attempt, status.value, self._retention, *_flat(fields)]
        return await self._run("complete", lane, args) in (1, 2)

    async def release(
        self, lane: str, task_id: str, attempt: int, *, strike: bool, alone: bool = False, reason: str = ""
    ) -> int:
        """Gives the task back; `reason` is what the client reads if that ends it.

        Returns 1 when it waits again, 2 when this ended it, 0 for a stale attempt.
        """
        limits = self.limits
        details = json.dumps({"error": reason or _GIVEN_UP})
        bounds = [limits.max_strikes, limits.max_losses, self._retention, details]
        args = [task_id, attempt, int(strike), int(alone), *bounds]
        return await self._run("release", lane, args)

    # Maintenance

    async def reap(self, lane: str, limit: int = 100) -> int:
        """Takes back tasks whose lease ran out. Returns how many."""
        limits = self.limits
        details = json.dumps({"error": _GIVEN_UP})
        return await self._run("reap", lane, [limit, limits.max_strikes, limits.max_losses, self._retention, details])

    async def end_overdue(self, lane: str, limit: int = 100) -> int:
        """Ends tasks past their deadline. Returns how many."""
        return await self._run("end_overdue", lane, [limit, self._retention])

    async def sweep(self, deleted: Sequence[str] = (), limit: int = 50, claim_s: float = 600) -> list[str]:
        """Forgets the tasks in `deleted`; returns further ids whose objects may go now."""
        return await self._run("sweep", "", [_ms(claim_s), limit, *deleted])

    async def migrate(self, lane: str) -> int:
        """Takes over what the release before queues and keeps under other names. Returns how many entries that were."""
        return await self._run("migrate", lane, [])

    # Plumbing

    @property
    def _retention(self) -> int:
        return _ms(self.limits.retention_s)

    def _idempotency_key(self, project: str, key: str) -> str:
        return self._key(f"idempotency:{project}:{hashlib.sha256(key.encode()).hexdigest()}")

    async def _now(self) -> float:
        seconds, micros = await cast(Awaitable[tuple[int, int]], self.redis.time())
        return int(seconds) + int(micros) / 1e6

    async def _lane_of(self, task_id: str) -> str | None:
        return await cast(Awaitable[str | None], self.redis.hget(self._key(f"task:{task_id}"), "lane"))

    async def _run(self, name: str, lane: str, args: Sequence[Any]) -> Any:
        return await self._scripts.run(name, [lane, *args])


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _flat(fields: Mapping[str, Any]) -> list[Any]:
    return [part for pair in fields.items() for part in pair]
