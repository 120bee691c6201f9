"""Deletion of a project's data. The ledger's numbers and the audit log stay.

| key | kind | holds |
|---|---|---|
| `gen:erasure:{project}` | hash | the latest deletion: `began by done` (epoch seconds) |

The first step closes the project, so that nothing is added meanwhile. It stays closed until it is opened again. Then,
batch by batch: end the tasks, delete their objects, delete their records. A task's record goes last, so a process that
continues after a crash finds what remains. Every step is idempotent, and several processes may run it at once.

Objects that a worker writes late are swept within an hour by `dispatcher/maintenance.py`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from deployments.contract.job import checkpoint_key
from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.projects import Project
from serve_app.dispatcher.maintenance import FOLDERS
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.storage.pages import scan_prefix
from serve_app.submission.errors import StorageUnreachable
from serve_app.tasks.store import TaskEraser

logger = logging.getLogger(__name__)

_BATCH: Final = 100
_BEGIN: Final = Path(__file__).parent / "accounts" / "begin_erasure.lua"


@dataclass(frozen=True, slots=True)
class DeletionRecord:
    project: str
    by: str
    started_at: float
    """Epoch seconds."""
    finished_at: float | None
    """Epoch seconds; None while the deletion is incomplete and has to be requested again."""


class ProjectDeletion:
    def __init__(self, redis: Redis, prefix: str, objects: ObjectStore) -> None:
        """`redis` must decode responses."""
        self._redis = redis
        self._prefix = prefix
        self._objects = objects
        self._tasks = TaskEraser(redis, prefix)
        self._finetunes = FinetuneRegistry(redis, prefix)
        self._audit = AuditLog(redis, prefix)
        self._keys = KeyStore(redis, prefix)
        self._begin = redis.register_script(_BEGIN.read_text())

    async def get(self, project: str) -> DeletionRecord | None:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(project)))
        if "began" not in raw:
            return None
        return DeletionRecord(project, raw["by"], float(raw["began"]), float(raw["done"]) if "done" in raw else None)

    async def is_running(self, project: str) -> bool:
        record = await self.get(project)
        return record is not None and record.finished_at is None

    async def erase(self, project: Project, actor: str, within_s: float = float("inf")) -> DeletionRecord:
        """Deletes the project's data, or as much of it as `within_s` allows. The next call continues.

        Raises StorageUnreachable.
        """
        try:
            return await self._erase(project, actor, time.monotonic() + within_s)
        except UNREACHABLE as problem:
            logger.warning("a deletion stopped: the object store is unreachable: %s", type(problem).__name__)
            raise StorageUnreachable from None

    async def _erase(self, project: Project, actor: str, deadline: float) -> DeletionRecord:
        project_key, audit = f"{self._prefix}project:{project.id}", self._audit.stream(project.organization)
        projects = f"{self._prefix}projects:{project.organization}"
        await self._begin(
            keys=[self._prefix],
            args=[self._key(project.id), project_key, projects, project.id, project.organization, audit, actor],
        )
        record = await self.get(project.id)
        assert record is not None
        if record.finished_at is not None:
            return record
        while ids := await self._tasks.list_ids(project.id, _BATCH):
            await self._tasks.end(project.id, ids)
            await self._objects.delete_prefixes([f"{folder}/{each}" for each in ids for folder in FOLDERS])
            await self._objects.delete([checkpoint_key(each) for each in ids])
            await self._tasks.forget(project.id, ids)
            if time.monotonic() > deadline:
                return record
        for finetune in await self._finetunes.list(project.id):
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
            await self._finetunes.remove(finetune)
        async for keys in scan_prefix(self._redis, f"{self._prefix}idempotency:{project.id}:"):
            await self._redis.unlink(*keys)
        await self._keys.forget_names(project.id)
        transaction = self._redis.pipeline(transaction=True)
        transaction.hsetnx(self._key(project.id), "done", str(time.time()))
        self._audit.note(transaction, project.organization, record.by, "erased project", project.id)
        await transaction.execute()
        # Otherwise the append-only file keeps the deleted data until its next rewrite. Managed servers forbid this.
        with contextlib.suppress(ResponseError):
            await self._redis.bgrewriteaof()
        return await self.get(project.id) or record

    def _key(self, project: str) -> str:
        return f"{self._prefix}erasure:{project}"
