"""The task store: accepted tasks in one Redis, changed by atomic steps.

Structures (`gen:` stands for the configured prefix, `{queue}` for the queue of one model deployment):

| key | kind | holds |
|---|---|---|
| `gen:task:{id}` | hash | the task, field by field below |
| `gen:queued:{queue}` | zset | waiting tasks by virtual start time (start-time fair queueing over projects) |
| `gen:quarantined:{queue}` | zset | waiting tasks that lost two workers or many attempts; leased few at a time |
| `gen:exclusive:{queue}` | set | quarantined that are leased now |
| `gen:leased:{queue}` | zset | leased tasks by the end of their lease, ms |
| `gen:deadlines:{queue}` | zset | every task that has not ended, by its present deadline, ms |
| `gen:clock:{queue}` | string | virtual time: the largest start time leased since it began (`fair.lua`) |
| `gen:fair:{queue}` | zset | projects by the virtual end of their last task; those in the past are forgotten |
| `gen:stats:{queue}` | hash | counts: `accepted`, outcomes, `put_back crashes interruptions reaped refused cancelled` |
| `gen:timings:{queue}` | hash | histograms of how long tasks waited and took: `timings.lua` |
| `gen:recent:{queue}:{period}:{n}` | hash | counts of one minute (`m`) or quarter of an hour (`q`): `windows.py` |
| `gen:turn:{device}` | hash | `queue since` of the model whose turn it is; `waits:{queue}`: others wait since, ms |
| `gen:pace:{queue}` | hash | `batch step_s` of the last step that was told of; goes after a minute |
| `gen:work:{queue}` | hash | sums of what replicas counted, by the names of `deployments/contract/counts.py` |
| `gen:device:{queue}` | hash | microseconds of a device that tasks took which have ended, by endpoint |
| `gen:device` | zset | the same by project |
| `gen:setup:{queue}` | hash | how the replica that reported last runs its model: device, precision, attention, ... |
| `gen:failed:{queue}` | list | ids of the last ten that ended as `Error` and were not cancelled, newest first |
| `gen:active:{project}` | zset | tasks that have not ended, by submission |
| `gen:tasks:{project}` | zset | all tasks that are still kept, by submission |
| `gen:idempotency:{project}:{hash}` | hash | `body id` of a request with such a key, `reply` once accepted; expires |
| `gen:uploads:{project}` | hash | bytes of each upload that is in `reserved`, or the most that it may have |
| `gen:upload:{id}` | string | project of an upload whose file has not come; expires |
| `gen:storing:{id}` | string | there while the file of an upload comes; expires |
| `gen:reserved:{project}` | zset | ids of tasks not submitted yet whose inputs are being stored, by when they go, ms |
| `gen:needed:{id}` | set | tasks that are made of objects of this one and have not ended |
| `gen:retention` | zset | ids by when their record and objects go: ended tasks, and reservations never submitted |
| `gen:rate:{key id}` | string | when a key's next request is due, ms; expires then |
| `gen:dispatcher` | string | there while any dispatcher is at work, and a few seconds more |
| `gen:replicated` | string | counts steps that were waited for until replicas had them |
| `gen:call:{id}` | string | what a call handed out, as JSON, for its repetition: `storage/prelude.lua` |
| `gen:demand:{queue}` | hash | `Plan.work`: `unfinished`, `accepted` ever, lately `done` and its `device_us` |
| `gen:cold:{queue}` | string | there while the queue's autoscaling policy sees no replica |
| `gen:idle:{queue}` | zset | dispatchers that have room for tasks of the queue, by since when, ms |
| `gen:memory` | string | fraction of the server's memory that is used; expires after a second |
| `gen:wake:{dispatcher}` | pub/sub | the queue of a task that came. Lossy: all look too |
| `gen:watch:{id}` | set | processes that show changes of the task; expires |
| `gen:changed:{process}` | pub/sub | a task that it watches got on. Lossy |
| `gen:done` `gen:stop` | pub/sub | a task ended; work must stop. Lossy as well |

Money moves in the same steps: `accounts/credits.py` names its structures. A submission reads the limits of its project
from `gen:project:{id}`. The step that ends a task with a webhook also makes its delivery due: `webhooks/outbox.py`.
What processes count in memory comes to `gen:tally:{name}`: `redis_store/tally.py`.

A task's hash: who and what (`id queue organization project endpoint key_id user job traceparent`), where it stands
(`status attempt begun crashes losses interruptions published_by`; `begun` is the last attempt that a worker began
with), its turn (`vt share`, in virtual time), times in ms (`created started finished`, and `left` of its time to work,
while it is quarantined), what came of it (`progress preview result details cancelled`), its price while it is
`held` and its `cost` once it is ready, whom to tell (`webhook_url webhook_destination webhook_base webhook_secret`), by
which token its result is `shared`, whether its owner `deleted` it, and the task whose objects it `needs`.
`job` is the record of `tasks.task.Job`, `preview`, `result` and `details` are JSON; money is in milli-credits. What
clients wrote is sealed where the settings say so: `job user webhook_url`, `result` and what an attempt says in
`details`, and `reply` of an idempotency key; `webhook_destination` is a keyed hash then. No script reads any of them.

Invariants, each held by every script; tests call them by these names:
1. `one_place`: a task that has not ended is in `deadlines` and in exactly one of `queued`, `quarantined`, `leased`; one
   that ended is in none of them and in `retention`.
2. `fenced`: `attempt` grows at every lease and at nothing else. A step that names another attempt changes nothing.
3. `one_outcome`: a terminal status never changes. One attempt publishes, once; repeating a step is harmless.
4. `crashes_are_losses`: `crashes` grows only when a worker was lost with a task, or a dispatcher with one that it had
   begun. Cancel, drain, release, a lost answer and a late call cost none.
5. `unblamed`: `interruptions` grows only when a model gave up an attempt that had begun, without blame: its device
   or the model itself is broken. Cancel, drain, back-pressure, storage out of reach and attempts that never began cost
   none.
6. `one_clock`: times are Redis' own (`TIME`); no two clocks are compared.
7. `held_until_ended`: the price of a task is held exactly while the task has not ended. Then it is settled, or given
   back, once.
8. `kept_while_needed`: a task is in `needed` of the task that it `needs` exactly while it has not ended; meanwhile the
   sweep deletes no object that it is made of.

Scripts build key names from ids, so all keys of one prefix live on one server.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass
from secrets import token_urlsafe
from typing import Any, Final, cast

from redis.asyncio import Redis

from deployments.contract.events import Preview
from serve_app.storage.scripts import Scripts, call_id, flat, milliseconds
from serve_app.tasks.admission import Admission
from serve_app.tasks.limits import Limits
from serve_app.tasks.result import GenerationResult
from serve_app.tasks.scripts import source
from serve_app.tasks.task import Lease, Status

_PRESENT_S = 5.0
"""How long a dispatcher counts as present after it said so."""
_LOST = "The task lost its worker too many times and was given up"


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds, 0 where there is nothing of the kind."""

    waiting: float
    """Since the submission of the task that has waited longest."""
    lease: float
    """Since the end of the lease that is longest over: what the reaper is behind."""
    deadline: float


class TaskStore(Admission):
    """The whole life of tasks; their admission is in `admission.py`."""

    async def cancel(self, task_id: str, project: str) -> int:
        """Returns 1 when the task is cancelled, 2 when it had ended otherwise, 0 when the project has no such task."""
        queue = await self._find_queue(task_id)
        if queue is None:
            return 0
        return await self._scripts.run_replicated("cancel", [queue, task_id, project, self._retention])

    async def delete(self, task_id: str, project: str) -> int:
        """Has the next sweep delete an ended task, which can't be read from now on.

        Returns 1; 2 when it has not ended, 0 when the project has none.
        """
        return await self._scripts.run_replicated("delete", ["", task_id, project, milliseconds(LATE_S)])

    async def share(self, task_id: str, project: str) -> str:
        """The token by which the project's task is shared from now on; empty where it has no such task."""
        return await self._scripts.run_replicated("share", ["", task_id, project, token_urlsafe(9)])

    async def unshare(self, task_id: str, project: str) -> None:
        """Ends all that it was shared by so far."""
        await self._scripts.run_replicated("share", ["", task_id, project, ""])

    # Work

    async def lease(self, queue: str, n: int, max_leased: int, dispatcher: str = "") -> list[Lease]:
        """Up to `n` tasks, such that at most `max_leased` of the queue are leased in all.

        A `dispatcher` that gets fewer than `n` is woken by its channel when there is one more; one that gets `n` is not
        and asks again once it has room. What is queued goes on while nothing new is accepted for want of memory, until
        half of what was left is used up.
        """
        limits = self.limits
        rows = await self._run(
            "lease",
            queue,
            [
                call_id(),
                n,
                max_leased,
                milliseconds(limits.lease_s),
                limits.max_exclusive,
                (1 + limits.max_memory) / 2,
                dispatcher,
            ],
        )
        return [
            Lease(
                id=task_id,
                attempt=int(attempt),
                exclusive=exclusive == 1,
                created=int(created) / 1000,
                job=self._unseal(job, task_id),
                project=project,
                traceparent=traceparent,
                began=int(now) / 1000,
                remaining_s=None if remaining_ms == "" else int(remaining_ms) / 1000,
            )
            for task_id, attempt, exclusive, created, job, project, traceparent, now, remaining_ms in rows
        ]

    async def turn(self, device: str, turn_s: float, queues: Sequence[str]) -> str:
        """The one of `queues` whose model has its turn on a device that has room for one of them at a time; "" while
        none had one. It passes on after `turn_s`, or when the queue is empty, to the one that has waited longest."""
        return await self._run("turn", "", [device, round(1000 * turn_s), *queues])

    async def heartbeat(self, queue: str, leases: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Prolongs the leases of these (id, attempt). Returns those that are no longer held."""
        if not leases:
            return []
        args = [milliseconds(self.limits.lease_s), *(part for pair in leases for part in pair)]
        return [leases[int(position)] for position in await self._run("heartbeat", queue, args)]

    async def advance(
        self,
        queue: str,
        task_id: str,
        attempt: int,
        status: Status,
        progress: float | None = None,
        preview: Preview | None = None,
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
            "" if preview is None else json.dumps(asdict(preview)),
            milliseconds(run_s or self.limits.run_s),
        ]
        return await self._run("advance", queue, args) == 1

    async def complete(
        self,
        queue: str,
        task_id: str,
        attempt: int,
        status: Status,
        *,
        result: GenerationResult | None = None,
        details: Mapping[str, Any] | None = None,
        cost: int | None = None,
        device_s: float = 0.0,
    ) -> bool:
        """Publishes the outcome. True when this attempt published it, now or in an earlier try; False when refused.

        `device_s` is how much of a device's time the attempt took, for the metrics.
        """
        if not status.terminal:
            raise ValueError(f"{status} is no outcome")
        fields: dict[str, Any] = {}
        if result is not None:
            fields["result"] = self._at_rest.seal(result.encode())
        if details is not None:
            fields["details"] = self._at_rest.seal(json.dumps(details))
        if cost is not None:
            fields["cost"] = cost
        device_us = round(1e6 * device_s)
        args = [queue, task_id, attempt, status.value, self._retention, device_us, *flat(fields)]
        return await self._scripts.run_replicated("complete", args) in (1, 2)

    async def release(
        self,
        queue: str,
        task_id: str,
        attempt: int,
        *,
        crash: bool,
        alone: bool = False,
        interrupted: bool = False,
        reason: str = "",
    ) -> int:
        """Gives the task back; `reason` is what the client reads if that ends it.

        `crash`: the worker was lost with it, which it had for itself if `alone`. `interrupted`: the model had begun,
        and gave up without blame.

        Returns 1 when it waits again, 2 when this ended it, 0 for a stale attempt.
        """
        args = [task_id, attempt, int(crash), int(alone), int(interrupted), *self._retry_limits(reason or _LOST)]
        return await self._run("release", queue, args)

    async def ages(self, queue: str) -> Ages:
        waiting, lease, deadline = await self._run("ages", queue, [])
        return Ages(waiting / 1000, lease / 1000, deadline / 1000)

    async def now(self) -> float:
        """Epoch seconds, by the clock of the store."""
        return await self._clock.now()

    async def sweep_lag(self) -> float:
        """For how many seconds the task has been due that is to be forgotten next; 0 where none is due."""
        first = await self.redis.zrange(self._key("retention"), 0, 0, withscores=True)
        due = cast(list[tuple[str, float]], first)
        return max(0.0, await self._clock.now() - due[0][1] / 1000) if due else 0.0

    # Maintenance

    async def with_work(self, *queues: str) -> list[str]:
        """Those of the queues in which tasks wait."""
        return await self._run("with_work", "", queues)

    async def reap(self, *queues: str, limit: int = 100) -> int:
        """Takes back up to `limit` tasks of each queue whose lease ran out. Returns how many."""
        return await self._run("reap", "", [limit, *self._retry_limits(_LOST), *queues])

    async def end_overdue(self, *queues: str, limit: int = 100) -> int:
        """Ends up to `limit` tasks of each queue that are past their deadline. Returns how many."""
        return await self._run("end_overdue", "", [limit, self._retention, *queues])

    async def sweep(self, deleted: Sequence[str] = (), limit: int = 200, claim_s: float = 600) -> list[str]:
        """Forgets the tasks in `deleted`; returns further ids whose objects may go now, none when there are no more."""
        while True:
            more, *ids = await self._run("sweep", "", [milliseconds(claim_s), limit, *deleted])
            if ids or not more or not limit:
                return ids
            deleted = ()

    async def find_needed(self, ids: Sequence[str]) -> set[str]:
        """Returns those of the tasks that others, which have not ended, are made of."""
        pipe = self.redis.pipeline(transaction=False)
        for task_id in ids:
            pipe.exists(self._key(f"needed:{task_id}"))
        answers = await pipe.execute() if ids else []
        return {task_id for task_id, is_needed in zip(ids, answers, strict=True) if is_needed}

    async def memory(self) -> tuple[int, int]:
        """Bytes that the server uses, and may use; 0 for no limit."""
        info = await cast(Awaitable[dict[str, Any]], self.redis.info("memory"))
        return int(info["used_memory"]), int(info["maxmemory"])

    async def mark_dispatcher_present(self) -> None:
        """To be repeated by whoever is one, every second or so."""
        await self._run("be_present", "", [milliseconds(_PRESENT_S)])

    # Metrics

    async def report(
        self,
        queue: str,
        counts: Mapping[str, float],
        setup: Mapping[str, str],
        last_step: tuple[int, float] | None = None,
    ) -> None:
        """Adds what a replica counted since its last report; one may be lost, or added twice: metrics, no accounts.

        `last_step`: how many took the last step together, and its seconds.
        """
        pipe = self.redis.pipeline()
        for name, count in counts.items():
            pipe.hincrbyfloat(self._key(f"work:{queue}"), name, count)
        if setup:
            pipe.delete(self._key(f"setup:{queue}"))
            pipe.hset(self._key(f"setup:{queue}"), items=[part for pair in setup.items() for part in pair])
        if last_step:
            pipe.hset(self._key(f"pace:{queue}"), mapping={"batch": last_step[0], "step_s": f"{last_step[1]:.4f}"})
            pipe.expire(self._key(f"pace:{queue}"), 60)
        await pipe.execute()

    # Plumbing

    @property
    def _retention(self) -> int:
        return milliseconds(self.limits.retention_s)

    def _retry_limits(self, error: str) -> list[Any]:
        """How often a task may come back, and what its client reads when that was too often."""
        limits = self.limits
        details = json.dumps({"error": error})
        return [
            limits.max_crashes,
            limits.max_total_crashes,
            limits.max_interruptions,
            self._retention,
            details,
            milliseconds(limits.queue_s),
        ]

    async def _find_queue(self, task_id: str) -> str | None:
        return await cast(Awaitable[str | None], self.redis.hget(self._key(f"task:{task_id}"), "queue"))


LATE_S: Final = 3600.0
"""How long after the end of a task something may still come of it; what does is swept then."""


class TaskEraser:
    def __init__(self, redis: Redis, prefix: str = "gen:", limits: Limits | None = None) -> None:
        """`redis` must decode responses."""
        self._redis = redis
        self._prefix = prefix
        self._retention = milliseconds((limits or Limits()).retention_s)
        self._scripts = Scripts(redis, prefix, source)

    async def list_ids(self, project: str, n: int) -> list[str]:
        """Up to `n` ids of tasks of the project that are kept, or may come to be; none when there are no more."""
        for index in ("tasks", "reserved"):
            ids = await self._redis.zrange(f"{self._prefix}{index}:{project}", 0, n - 1)
            if ids:
                return cast(list[str], ids)
        return []

    async def end(self, project: str, ids: Sequence[str]) -> None:
        """Stops the work on these tasks of the project, gives back what was held for them, and drops their webhooks."""
        await self._run("erase", project, self._retention, *ids)

    async def forget(self, project: str, ids: Sequence[str]) -> None:
        """Forgets tasks that have ended, and reservations."""
        await self._run("forget", project, milliseconds(LATE_S), *ids)

    async def _run(self, name: str, *args: str | int) -> None:
        await cast(Awaitable[int], self._scripts.run(name, ["", *args]))
