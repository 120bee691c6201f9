"""Admission of tasks: a look, then one atomic step that decides."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, cast

from redis.asyncio import Redis

from serve_app.encryption import IN_CLEAR, AtRest, Unreadable
from serve_app.storage.connection import NO_ANSWER
from serve_app.storage.scripts import UNREPLICATED, RedisClock, Replication, Scripts, flat, milliseconds
from serve_app.tasks.destination import WebhookDestination
from serve_app.tasks.limits import (
    IdempotencyMismatch,
    Limits,
    ReplyUnreadable,
    StillInWork,
    TooLate,
    Uncertain,
    refusal,
)
from serve_app.tasks.reader import TaskReader
from serve_app.tasks.scripts import source
from serve_app.tasks.task import AcceptedTask, NewTask

SUBMIT_S = 4.0
"""How long after it was sent a submission may still be carried out; less than its client is made to wait."""

CLAIM_S = 30.0
"""How long an idempotency key is kept for a request that is being checked: repetitions are put off for so long where
whoever handled the first died, or lost the task store.
"""

RESERVATION_S = 3600
"""How long inputs may wait in the object store for their submission before they are swept."""


STORING_S = 300
"""Time that one process has to store an uploaded file, in seconds, before another may begin."""


class Admission(TaskReader):
    def __init__(
        self,
        redis: Redis,
        prefix: str = "gen:",
        limits: Limits | None = None,
        replication: Replication = UNREPLICATED,
        at_rest: AtRest = IN_CLEAR,
    ) -> None:
        """`redis` must decode responses."""
        super().__init__(redis, prefix, at_rest)
        self.limits = limits or Limits()
        self._clock = RedisClock(redis)
        self._scripts = Scripts(redis, prefix, source, replication)

    async def look(
        self,
        *,
        queue: str,
        project: str,
        organization: str,
        price: int,
        key_id: str,
        idempotency_key: str = "",
        body_hash: str = "",
        task_id: str = "",
    ) -> str | None:
        """The reply to an earlier submission with this idempotency key, None when there was none.

        Raises the kind of Refused that `submit` would meet now, whatever the task is; `price` is the least that it can
        cost. Spares a request that comes to nothing its work. Changes nothing, but that the key is kept for the task
        `task_id`, if it is named, until that is submitted or `give_up_key` is called. `submit` decides all the same,
        so that parallel repeats make one task.
        """
        args = [
            self._idempotency_key(project, idempotency_key),
            body_hash,
            project,
            organization,
            price,
            self.limits.max_queued,
            self.limits.max_active,
            key_id,
            *self._rate,
            self.limits.max_memory,
            task_id,
            milliseconds(CLAIM_S),
        ]
        code, *rest = _parse_answer(await self._run("look", queue, args))
        return self._earlier(rest[0]) if code == 2 else None

    async def give_up_key(self, project: str, idempotency_key: str, task_id: str) -> None:
        """Frees the key that `look` kept for the task, which is not to be. Once it is made, nothing changes."""
        await self._run("give_up_key", "", [self._idempotency_key(project, idempotency_key), task_id])

    async def count_request(self, key_id: str) -> int:
        """Counts a request that makes no task as one of those that the key may send; returns how many it has left.

        Raises TooFast.
        """
        _, remaining = _parse_answer(await self._run("count_request", "", [key_id, *self._rate]))
        return remaining

    async def reserve(self, task_id: str, project: str) -> float:
        """Notes that objects of a task not yet submitted are about to be stored, so that a crash leaves no orphans.

        Returns when they go, epoch seconds.
        """
        now, own = await self._clock.now(), self._key(f"reserved:{project}")
        due = milliseconds(now + RESERVATION_S)
        pipe = self.redis.pipeline(transaction=True)
        pipe.zadd(self._key("retention"), {task_id: due})
        pipe.zremrangebyscore(own, "-inf", milliseconds(now))
        pipe.zadd(own, {task_id: due})
        pipe.pexpireat(own, due)
        await pipe.execute()
        return due / 1000

    async def reserve_upload(
        self, upload_id: str, project: str, organization: str, max_bytes: int, least_price: int
    ) -> float:
        """Reserves a file that a client is about to upload. Returns when it goes, epoch seconds.

        `least_price` is in milli-credits. Raises TooManyUploads, or InsufficientCredits or SpendingLimitReached where
        the project can't pay so much.
        """
        limits, due = self.limits, milliseconds(await self._clock.now() + RESERVATION_S)
        bounds = [limits.max_uploads, limits.max_uploads_mb * 2**20]
        _parse_answer(
            await self._run(
                "reserve_upload", "", [upload_id, project, organization, max_bytes, due, *bounds, least_price]
            )
        )
        return due / 1000

    async def begin_upload(self, upload_id: str) -> str | None:
        """Returns the project of an upload whose file may come now; None where one is coming or has come already.

        A process that dies while the file comes holds it up for `STORING_S`.
        """
        if not await self.redis.set(self._key(f"storing:{upload_id}"), 1, nx=True, ex=STORING_S):
            return None
        return await cast(Awaitable[str | None], self.redis.get(self._key(f"upload:{upload_id}")))

    async def abort_upload(self, upload_id: str) -> None:
        """Lets the file come another time, after one that broke off."""
        await self.redis.delete(self._key(f"storing:{upload_id}"))

    async def end_upload(self, upload_id: str, project: str, size: int) -> None:
        """Notes that the file has come, and its bytes."""
        await self._run("end_upload", "", [upload_id, project, size])

    async def is_reserved(self, task_id: str, project: str) -> bool:
        due = await self.redis.zscore(self._key(f"reserved:{project}"), task_id)
        return due is not None and due > milliseconds(await self._clock.now())

    async def submit(self, task: NewTask) -> AcceptedTask:
        """Creates and queues the task, and holds its price.

        Raises a kind of Refused, or RedisError; then nothing was written, and nothing will be. Raises Uncertain.
        """
        limits, at_rest = self.limits, self._at_rest
        fields = {"job": at_rest.seal(task.job), "user": task.user and at_rest.seal(task.user)}
        fields["traceparent"] = task.traceparent
        if task.webhook is not None:
            destination = WebhookDestination(at_rest.name(task.webhook.destination), task.organization).encode()
            sealed = {"url": at_rest.seal(task.webhook.url), "destination": destination}
            fields |= replace(task.webhook, **sealed).to_fields()
        args = [
            task.id,
            task.project,
            task.work,
            task.weight,
            limits.max_queued,
            limits.max_active,
            milliseconds(limits.queue_s),
            milliseconds(limits.idempotency_s),
            self._idempotency_key(task.project, task.idempotency_key),
            task.body_hash,
            at_rest.seal(task.reply) if task.idempotency_key else "",
            task.organization,
            task.price,
            task.endpoint,
            task.key_id,
            *self._rate,
            milliseconds(await self._clock.now() + SUBMIT_S),
            limits.max_memory,
            task.needs,
            milliseconds(limits.queue_s + limits.run_s),
            *flat({name: value for name, value in fields.items() if value != ""}),
        ]
        try:
            answer = await self._scripts.run_replicated("submit", [task.queue, *args])
        except NO_ANSWER as problem:
            raise Uncertain from problem
        try:
            code, *rest = _parse_answer(answer)
        except TooLate:
            self._clock.forget()
            raise
        if code == 1:
            return AcceptedTask(task.reply, created=True, requests_remaining=rest[1])
        return AcceptedTask(self._earlier(rest[0]), created=False)

    def _earlier(self, reply: str) -> str:
        """The reply to an earlier submission. Raises ReplyUnreadable."""
        try:
            return self._at_rest.open(reply)
        except Unreadable:
            raise ReplyUnreadable from None

    @property
    def _rate(self) -> tuple[float, int]:
        """Milliseconds between the requests of a key, and how many it may send at once."""
        return 1000 / self.limits.requests_per_s, self.limits.burst

    def _idempotency_key(self, project: str, key: str) -> str:
        """Empty for an empty one."""
        return key and self._key(f"idempotency:{project}:{hashlib.sha256(key.encode()).hexdigest()}")

    async def _run(self, name: str, queue: str, args: Sequence[Any]) -> Any:
        return await self._scripts.run(name, [queue, *args])


def _parse_answer(answer: list[Any]) -> list[Any]:
    """What a script answered that may refuse. Raises what it refused with."""
    if answer[0] == 0:
        raise refusal(*answer[1:])
    if answer[0] == 3:
        raise IdempotencyMismatch
    if answer[0] == 4:
        raise StillInWork
    return answer
