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
| `gen:stats:{queue}` | hash | counts: `accepted`, outcomes, `requeued crashes interruptions reaped refused cancelled` |
| `gen:timings:{queue}` | hash | histograms of how long tasks waited and took: `timings.lua` |
| `gen:recent:{queue}:{period}:{n}` | hash | counts of one minute (`m`) or quarter of an hour (`q`): `windows.py` |
| `gen:turn:{device}` | hash | `queue since` of the model whose turn it is; `waits:{queue}`: others wait since, ms |
| `gen:pace:{queue}` | hash | `batch step_s` of the last reported step; expires after a minute |
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
| `gen:call:{id}` | string | what a call handed out, for its repetition: `storage/prelude.lua` |
| `gen:demand:{queue}` | hash | units of work: `unfinished`, `accepted` ever, lately `done` and its `device_us` |
| `gen:cold:{queue}` | string | there while the queue's autoscaling policy sees no replica |
| `gen:idle:{queue}` | zset | dispatchers that have room for tasks of the queue, by since when, ms |
| `gen:memory` | string | fraction of the server's memory that is used; expires after a second |
| `gen:wake:{dispatcher}` | pub/sub | the queue of a task that came. Lossy: all look too |
| `gen:watch:{id}` | set | processes that show changes of the task; expires |
| `gen:changed:{process}` | pub/sub | a task that it watches got on. Lossy |
| `gen:done` `gen:stop` | pub/sub | a task ended; work must stop. Lossy as well |

Money moves in the same steps: `accounts/credits.py` names its structures. A submission reads the limits of its project
from `gen:project:{id}`. The step that ends a task with a webhook also makes its delivery due: `webhooks/outbox.py`.
What processes count in memory comes to `gen:tally:{name}`: `storage/tally.py`.

A task's hash: who and what (`id queue organization project endpoint key_id user job traceparent`), where it stands
(`status attempt begun crashes losses interruptions published_by`; `begun` is the last attempt that a worker began
with), its turn (`vt share`, in virtual time), times in ms (`created started finished`, and `left` of its time to work,
while it is quarantined), how far it is and how it ended (`progress preview resolved result details cancelled`), its
price while it is `held` and its `cost` once it is ready, where to send its end (`webhook_url webhook_destination
webhook_base webhook_secret`), the token by which its result is `shared`, whether its owner `deleted` it, and the task
whose objects it `needs`.
`job` is the encoded `TaskPayload`, `resolved` that of later attempts; `preview`, `result` and `details` are JSON; money
is in milli-credits. What clients wrote is sealed where the settings say so: `job resolved user webhook_url`, `result`
and what an attempt says in `details`, and `reply` of an idempotency key; the origin in `webhook_destination` is a keyed
hash then. No script reads any of them.

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

import hashlib
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict
from secrets import token_urlsafe
from typing import Any, Final, cast

from redis.asyncio import Redis

from deployments.contract.events import Preview
from serve_app.encryption import IN_CLEAR, AtRest, UnknownSealingKey
from serve_app.storage.connection import NO_ANSWER
from serve_app.storage.scripts import UNREPLICATED, Replication, Scripts, call_id, flat, milliseconds
from serve_app.tasks.limits import Limits
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.reads import StepTiming, TaskReads
from serve_app.tasks.rejections import ReplyUnreadable, SubmissionUnknown, SubmitExpired, TaskRejected, rejection
from serve_app.tasks.reservations import Reservations
from serve_app.tasks.result import GenerationResult
from serve_app.tasks.scripts import (
    AdvanceOutcome,
    CancelOutcome,
    CheckOutcome,
    CompleteOutcome,
    DeleteOutcome,
    ReleaseCause,
    ReleaseOutcome,
    SubmitOutcome,
    source,
)
from serve_app.tasks.task import AcceptedTask, Lease, NewTask, Status

SUBMIT_S: Final = 4.0
"""Seconds after which a submission that was sent is no longer carried out; less than its client is made to wait."""
CLAIM_S: Final = 30.0
"""Lifetime of an idempotency key while its request is checked, in seconds. Repetitions wait for so long when the
process that handled the first died, or lost the task store.
"""
LATE_S: Final = 3600.0
"""Seconds after the end of a task during which an attempt may still store objects, which are swept then."""
_PRESENT_S: Final = 5.0
"""Seconds that a dispatcher counts as present after a heartbeat."""
_LOST: Final = "The task lost its worker too many times and was given up"


class TaskStore:
    """The whole life of tasks. `reads` reads them, `reservations` keeps inputs of tasks that are not submitted yet."""

    def __init__(
        self,
        redis: Redis,
        prefix: str = "gen:",
        limits: Limits | None = None,
        replication: Replication = UNREPLICATED,
        at_rest: AtRest = IN_CLEAR,
    ) -> None:
        """`redis` must decode responses."""
        self.redis = redis
        self.prefix = prefix
        self.limits = limits or Limits()
        self.reads = TaskReads(redis, prefix, at_rest)
        self.reservations = Reservations(redis, prefix, self.limits, self.reads.clock)
        self._at_rest = at_rest
        self._scripts = Scripts(redis, prefix, source, replication)

    # Submission

    async def precheck(
        self,
        *,
        queue: str,
        project: str,
        organization: str,
        price: int,
        key_id: str,
        task_id: str,
        idempotency_key: str = "",
        body_hash: str = "",
    ) -> str | None:
        """Returns the reply to an earlier submission with this idempotency key, None when there was none.

        Raises the kind of TaskRejected that `submit` would raise now; `price` is the least that the task can cost. It
        spares a request that comes to nothing its work. The task keeps the key until it is submitted or
        `release_idempotency_key` is called; nothing else changes. `submit` decides all the same, so that parallel
        repeats make one task.
        """
        answer = await self._scripts.call(
            "precheck",
            queue,
            id=task_id,
            project=project,
            organization=organization,
            key_id=key_id,
            price=price,
            claim_ms=milliseconds(CLAIM_S),
            not_after_ms=await self._not_after_ms(),
            idempotency_key=self._idempotency_key(project, idempotency_key),
            body_hash=body_hash,
            **self._admission_limits,
        )
        match CheckOutcome(answer["outcome"]):
            case CheckOutcome.PASSED:
                return None
            case CheckOutcome.REPEATED:
                return self._open_reply(answer["reply"])
            case CheckOutcome.REJECTED:
                raise self._rejection(answer)

    async def release_idempotency_key(self, project: str, idempotency_key: str, task_id: str) -> None:
        """Frees the key that `precheck` kept for the task, which is not to be. Once it is made, nothing changes."""
        key = self._idempotency_key(project, idempotency_key)
        await self._scripts.call("release_idempotency_key", idempotency_key=key, id=task_id)

    async def consume_rate_limit(self, key_id: str) -> int:
        """Counts a request that makes no task, and returns how many the key may send now. Raises RateLimited."""
        limits = self.limits
        answer = await self._scripts.call(
            "consume_rate_limit", key_id=key_id, every_ms=1000 / limits.requests_per_s, burst=limits.burst
        )
        if CheckOutcome(answer["outcome"]) is CheckOutcome.REJECTED:
            raise rejection(answer)
        return answer["requests_left"]

    async def submit(self, task: NewTask) -> AcceptedTask:
        """Creates and queues the task, and holds its price.

        Raises a kind of TaskRejected, or RedisError; then nothing was written, and nothing will be. Raises
        SubmissionUnknown.
        """
        limits, at_rest = self.limits, self._at_rest
        fields = {"job": at_rest.seal(task.payload.encode())}
        if task.user:
            fields["user"] = at_rest.seal(task.user)
        if task.traceparent:
            fields["traceparent"] = task.traceparent
        if task.webhook is not None:
            fields |= task.webhook.sealed(at_rest, task.organization).to_fields()
        not_after_ms = await self._not_after_ms()
        try:
            answer = await self._scripts.call(
                "submit",
                task.queue,
                replicated=True,
                id=task.id,
                project=task.project,
                organization=task.organization,
                endpoint=task.endpoint,
                key_id=task.key_id,
                price=task.price,
                work=task.payload.request.work,
                weight=task.weight,
                fields=fields,
                queue_ms=milliseconds(limits.queue_s),
                not_after_ms=not_after_ms,
                idempotency_key=self._idempotency_key(task.project, task.idempotency_key),
                idempotency_ms=milliseconds(limits.idempotency_s),
                body_hash=task.body_hash,
                reply=at_rest.seal(task.reply) if task.idempotency_key else None,
                needs=task.needs or None,
                keep_ms=milliseconds(limits.queue_s + limits.run_s),
                **self._admission_limits,
            )
        except NO_ANSWER as problem:
            raise SubmissionUnknown from problem
        match SubmitOutcome(answer["outcome"]):
            case SubmitOutcome.CREATED:
                return AcceptedTask(task.reply, created=True, requests_left=answer["requests_left"])
            case SubmitOutcome.REPEATED:
                return AcceptedTask(self._open_reply(answer["reply"]), created=False)
        raise self._rejection(answer)

    async def _not_after_ms(self) -> int:
        return milliseconds(await self.reads.clock.now() + SUBMIT_S)

    def _rejection(self, answer: Mapping[str, Any]) -> TaskRejected:
        problem = rejection(answer)
        if isinstance(problem, SubmitExpired):
            self.reads.clock.forget()
        return problem

    def _open_reply(self, reply: str) -> str:
        try:
            return self._at_rest.open(reply)
        except UnknownSealingKey:
            raise ReplyUnreadable from None

    @property
    def _admission_limits(self) -> Mapping[str, Any]:
        limits = self.limits
        return {
            "max_queued": limits.max_queued,
            "max_active": limits.max_active,
            "max_memory": limits.max_memory,
            "every_ms": 1000 / limits.requests_per_s,
            "burst": limits.burst,
        }

    def _idempotency_key(self, project: str, key: str) -> str | None:
        return f"{self.prefix}idempotency:{project}:{hashlib.sha256(key.encode()).hexdigest()}" if key else None

    # Changes by the owner

    async def cancel(self, task_id: str, project: str) -> CancelOutcome:
        queue = await cast(Awaitable[str | None], self.redis.hget(f"{self.prefix}task:{task_id}", "queue"))
        if queue is None:
            return CancelOutcome.UNKNOWN
        answer = await self._scripts.call(
            "cancel",
            queue,
            replicated=True,
            id=task_id,
            project=project,
            retention_ms=self._retention_ms,
        )
        return CancelOutcome(answer["outcome"])

    async def delete(self, task_id: str, project: str) -> DeleteOutcome:
        """Has the next sweep delete an ended task, which can't be read from now on."""
        late_ms = milliseconds(LATE_S)
        answer = await self._scripts.call("delete", replicated=True, id=task_id, project=project, late_ms=late_ms)
        return DeleteOutcome(answer["outcome"])

    async def share(self, task_id: str, project: str) -> str | None:
        """Returns the token by which the task is shared from now on; None where the project has no such task."""
        answer = await self._scripts.call("share", replicated=True, id=task_id, project=project, token=token_urlsafe(9))
        return answer.get("token")

    async def unshare(self, task_id: str, project: str) -> None:
        """Ends all links that the task was shared by."""
        await self._scripts.call("share", replicated=True, id=task_id, project=project)

    # Work

    async def lease(self, queue: str, n: int, max_leased: int, dispatcher: str = "") -> list[Lease]:
        """Leases up to `n` tasks, such that at most `max_leased` of the queue are leased in all.

        A `dispatcher` that gets fewer than `n` is woken by its channel when there is one more; one that gets `n` is not
        and asks again once it has room. While nothing new is accepted for want of memory, queued tasks go on until half
        of the remaining memory is used up.
        """
        limits = self.limits
        answer = await self._scripts.call(
            "lease",
            queue,
            call=call_id(),
            n=n,
            max_leased=max_leased,
            lease_ms=milliseconds(limits.lease_s),
            max_exclusive=limits.max_exclusive,
            max_memory=(1 + limits.max_memory) / 2,
            dispatcher=dispatcher or None,
        )
        return [
            Lease(
                id=row["id"],
                attempt=row["attempt"],
                exclusive=row["exclusive"],
                created=row["created"] / 1000,
                payload=self.reads.unseal(row["payload"], row["id"]),
                project=row["project"],
                traceparent=row["traceparent"],
                leased_at=row["now"] / 1000,
                remaining_s=row["remaining_ms"] / 1000 if "remaining_ms" in row else None,
            )
            for row in answer.get("leases", ())
        ]

    async def device_turn(self, device: str, turn_s: float, queues: Sequence[str]) -> str | None:
        """Returns which of `queues` has its turn on a device that has room for one of their models at a time.

        The turn passes on after `turn_s`, or when the queue is empty, to the queue that has waited longest. None while
        no queue had a turn.
        """
        answer = await self._scripts.call("device_turn", device=device, turn_ms=milliseconds(turn_s), queues=queues)
        return answer.get("queue")

    async def heartbeat(self, queue: str, leases: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Prolongs the leases, each an id and an attempt. Returns those that are no longer held."""
        if not leases:
            return []
        lease_ms = milliseconds(self.limits.lease_s)
        answer = await self._scripts.call("heartbeat", queue, lease_ms=lease_ms, leases=leases)
        return [leases[position] for position in answer["lost"]]

    async def advance(
        self,
        queue: str,
        task_id: str,
        attempt: int,
        status: Status,
        *,
        progress: float | None = None,
        preview: Preview | None = None,
        resolved: TaskPayload | None = None,
        run_s: float | None = None,
    ) -> bool:
        """Moves phase and progress forward. Returns whether the attempt still holds its lease.

        `resolved` is the payload that later attempts get. `run_s`, in place of the limit, counts from the first start
        of work.
        """
        answer = await self._scripts.call(
            "advance",
            queue,
            id=task_id,
            attempt=attempt,
            status=status,
            progress=progress,
            preview=None if preview is None else json.dumps(asdict(preview)),
            resolved=None if resolved is None else self._at_rest.seal(resolved.encode()),
            run_ms=milliseconds(run_s or self.limits.run_s),
        )
        return AdvanceOutcome(answer["outcome"]) is AdvanceOutcome.ADVANCED

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
        """Publishes the outcome. Returns whether it is this attempt's, published now or in an earlier try.

        `device_s` is the device time that the attempt took, for the metrics.
        """
        if not status.terminal:
            raise ValueError(f"{status} is no outcome")
        fields: dict[str, str | int] = {}
        if result is not None:
            fields["result"] = self._at_rest.seal(result.encode())
        if details is not None:
            fields["details"] = self._at_rest.seal(json.dumps(details))
        if cost is not None:
            fields["cost"] = cost
        answer = await self._scripts.call(
            "complete",
            queue,
            replicated=True,
            id=task_id,
            attempt=attempt,
            status=status,
            retention_ms=self._retention_ms,
            device_us=round(1e6 * device_s),
            fields=fields,
        )
        return CompleteOutcome(answer["outcome"]) is not CompleteOutcome.REFUSED

    async def release(
        self,
        queue: str,
        task_id: str,
        attempt: int,
        cause: ReleaseCause = ReleaseCause.REQUEUE,
        reason: str = "",
        *,
        resolved: TaskPayload | None = None,
    ) -> ReleaseOutcome:
        """Gives the task back. Clients read the `reason` if that ends the task. `resolved` as in `advance`."""
        answer = await self._scripts.call(
            "release",
            queue,
            id=task_id,
            attempt=attempt,
            cause=cause,
            retry=self._retry(reason or _LOST),
            resolved=None if resolved is None else self._at_rest.seal(resolved.encode()),
        )
        return ReleaseOutcome(answer["outcome"])

    # Maintenance

    async def reap(self, *queues: str, limit: int = 100) -> int:
        """Takes back up to `limit` tasks of each queue whose lease ran out. Returns their number."""
        answer = await self._scripts.call("reap", queues=queues, limit=limit, retry=self._retry(_LOST))
        return answer["count"]

    async def end_overdue(self, *queues: str, limit: int = 100) -> int:
        """Ends up to `limit` tasks of each queue that are past their deadline. Returns their number."""
        answer = await self._scripts.call("end_overdue", queues=queues, limit=limit, retention_ms=self._retention_ms)
        return answer["count"]

    async def sweep(self, deleted: Sequence[str] = (), limit: int = 200, claim_s: float = 600) -> list[str]:
        """Forgets the tasks in `deleted`. Returns further ids whose objects may go now, none when there are no more."""
        while True:
            claim_ms = milliseconds(claim_s)
            answer = await self._scripts.call("sweep", deleted=deleted, limit=limit, claim_ms=claim_ms)
            if answer["ids"] or not answer["more"] or not limit:
                return list(answer["ids"])
            deleted = ()

    async def heartbeat_dispatcher(self) -> None:
        """Notes that a dispatcher is at work; repeated every second or so."""
        await self._scripts.call("heartbeat_dispatcher", for_ms=milliseconds(_PRESENT_S))

    async def report(
        self,
        queue: str,
        counts: Mapping[str, float],
        setup: Mapping[str, str],
        last_step: StepTiming | None = None,
    ) -> None:
        """Adds the counts of a replica since its last report. One may be lost, or added twice: they are no accounts."""
        pipe = self.redis.pipeline()
        for name, count in counts.items():
            pipe.hincrbyfloat(f"{self.prefix}work:{queue}", name, count)
        if setup:
            pipe.delete(f"{self.prefix}setup:{queue}")
            pipe.hset(f"{self.prefix}setup:{queue}", items=flat(setup))
        if last_step:
            pace = {"batch": last_step.batch, "step_s": f"{last_step.step_s:.4f}"}
            pipe.hset(f"{self.prefix}pace:{queue}", items=flat(pace))
            pipe.expire(f"{self.prefix}pace:{queue}", 60)
        await pipe.execute()

    def channel(self, name: str) -> str:
        """Returns the pub/sub channel `done`, `stop` or `wake:{dispatcher}`."""
        return self.prefix + name

    @property
    def _retention_ms(self) -> int:
        return milliseconds(self.limits.retention_s)

    def _retry(self, error: str) -> Mapping[str, int | str]:
        """Returns how often a task may come back, and its `details` when that was too often."""
        limits = self.limits
        return {
            "max_crashes": limits.max_crashes,
            "max_losses": limits.max_total_crashes,
            "max_interruptions": limits.max_interruptions,
            "retention_ms": self._retention_ms,
            "queue_ms": milliseconds(limits.queue_s),
            "details": json.dumps({"error": error}),
        }


class TaskEraser:
    """Ends and forgets all tasks of a project."""

    def __init__(self, redis: Redis, prefix: str = "gen:", limits: Limits | None = None) -> None:
        """`redis` must decode responses."""
        self._redis = redis
        self._prefix = prefix
        self._retention_ms = milliseconds((limits or Limits()).retention_s)
        self._scripts = Scripts(redis, prefix, source)

    async def list_ids(self, project: str, n: int) -> list[str]:
        """Returns up to `n` ids of tasks of the project that are kept, or reserved; none when there are no more."""
        for index in ("tasks", "reserved"):
            ids = await self._redis.zrange(f"{self._prefix}{index}:{project}", 0, n - 1)
            if ids:
                return cast(list[str], ids)
        return []

    async def end(self, project: str, ids: Sequence[str]) -> None:
        """Stops the work on these tasks of the project, returns their holds, and drops their webhooks."""
        await self._scripts.call("erase", project=project, ids=ids, retention_ms=self._retention_ms)

    async def forget(self, project: str, ids: Sequence[str]) -> None:
        """Forgets tasks that have ended, and reservations."""
        await self._scripts.call("forget", project=project, ids=ids, late_ms=milliseconds(LATE_S))
