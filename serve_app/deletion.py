"""Deletion of a project's data. The ledger's numbers and the audit log stay.

| key | kind | holds |
|---|---|---|
| `gen:erasure:{project}` | hash | the latest one: `began by done` (epoch seconds) |

The project is closed by the step that begins an erasure, so nothing is added meanwhile, and stays so until it is opened
again. Then, batch by batch: tasks are ended, their objects are deleted, their records forgotten. A record goes last, so
a process that continues after a crash finds the rest; every step is idempotent, and processes may run them at once.

Maintenance sweeps the objects that a worker writes late within an hour (`dispatcher/maintenance.py`).
"""

from __future__ import annotations

import contextlib
import logging
import re
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
from serve_app.submission.errors import StorageUnreachable
from serve_app.tasks.store import TaskEraser

logger = logging.getLogger(__name__)

_BATCH: Final = 100
_BEGIN: Final = Path(__file__).parent / "accounts" / "begin_erasure.lua"


@dataclass(frozen=True, slots=True)
class DeletionRecord:
    project: str
    by: str
    began: float
    """Epoch seconds."""
    done: float | None
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
        erasure = await self.get(project)
        return erasure is not None and erasure.done is None

    async def erase(self, project: Project, actor: str, within_s: float = float("inf")) -> DeletionRecord:
        """Erases until it is done, or `within_s` is over: then more is left, and this is to be called again.

        Raises StorageUnreachable; then, too, it goes on where it was when called again.
        """
        try:
            return await self._erase(project, actor, time.monotonic() + within_s)
        except UNREACHABLE as problem:
            logger.warning("an erasure stopped on its way: the object store: %s", type(problem).__name__)
            raise StorageUnreachable from None

    async def _erase(self, project: Project, actor: str, give_up: float) -> DeletionRecord:
        record, audit = f"{self._prefix}project:{project.id}", self._audit.stream(project.organization)
        projects = f"{self._prefix}projects:{project.organization}"
        await self._begin(
            keys=[self._prefix],
            args=[self._key(project.id), record, projects, project.id, project.organization, audit, actor],
        )
        erasure = await self.get(project.id)
        assert erasure is not None
        if erasure.done is not None:
            return erasure
        while ids := await self._tasks.list_ids(project.id, _BATCH):
            await self._tasks.end(project.id, ids)
            await self._objects.delete_prefixes([f"{folder}/{each}" for each in ids for folder in FOLDERS])
            await self._objects.delete([checkpoint_key(each) for each in ids])
            await self._tasks.forget(project.id, ids)
            if time.monotonic() > give_up:
                return erasure
        for finetune in await self._finetunes.list(project.id):
            await self._objects.delete_prefix(f"finetunes/{finetune.id}")
            await self._finetunes.remove(finetune)
        async for key in self._redis.scan_iter(f"{_literal(f'{self._prefix}idempotency:{project.id}:')}*", count=1000):
            await self._redis.unlink(key)
        await self._keys.forget_names(project.id)
        transaction = self._redis.pipeline(transaction=True)
        transaction.hsetnx(self._key(project.id), "done", str(time.time()))
        self._audit.note(transaction, project.organization, erasure.by, "erased project", project.id)
        await transaction.execute()
        # Else the server's log of writes tells of what is gone until it is rewritten by itself. Some forbid it.
        with contextlib.suppress(ResponseError):
            await self._redis.bgrewriteaof()
        return await self.get(project.id) or erasure

    def _key(self, project: str) -> str:
        return f"{self._prefix}erasure:{project}"


def _literal(text: str) -> str:
    """Escapes the text for patterns of Redis."""
    return re.sub(r"([\\*?\[\]^-])", r"\\\1", text)
