"""Erases what a project has, all of it but the numbers of the ledger, and counts what that was.

The project is closed first, so nothing is added meanwhile. Then, batch by batch: tasks are ended, their objects are
deleted, their records forgotten. A record goes last, so whoever begins anew after a crash finds what is left to do;
every step may be repeated, and any number of processes may be at it at once. In the end all keys of the store are
looked through, for what no index knows.

What a worker that has not heard of it yet writes late is swept within an hour (`tasks/erasing.py`).
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.accounts.credits import Credits
from serve_app.accounts.erasures import Erasure, ErasureStore
from serve_app.accounts.names import KeyNames
from serve_app.accounts.projects import Project
from serve_app.dispatch.generation import CHECKPOINTS, checkpoint_of
from serve_app.dispatch.maintenance import PLACES
from serve_app.finetunes.registry import Finetune, FinetuneRegistry
from serve_app.submission.errors import StorageOutOfReach
from serve_app.tasks.erasing import TaskEraser

logger = logging.getLogger(__name__)

_BATCH: Final = 100
_PAGE: Final = 1000


class Eraser:
    def __init__(self, redis: Redis, prefix: str, objects: ObjectStore) -> None:
        """`redis` must decode responses."""
        self._redis = redis
        self._prefix = prefix
        self._objects = objects
        self._tasks = TaskEraser(redis, prefix)
        self._finetunes = FinetuneRegistry(redis, prefix)
        self._names = KeyNames(redis, prefix, objects)
        self._credits = Credits(redis, prefix, objects)
        self._erasures = ErasureStore(redis, prefix)

    async def erase(self, project: Project, actor: str, within_s: float = float("inf")) -> Erasure:
        """Erases until it is done, or `within_s` is over: then more is left, and this is to be called again.

        Raises StorageOutOfReach or ArchiveOutOfReach; then, too, it goes on where it was when called again.
        """
        try:
            return await self._erase(project, actor, time.monotonic() + within_s)
        except UNREACHABLE as problem:
            logger.warning("an erasure stopped on its way: the object store: %s", type(problem).__name__)
            raise StorageOutOfReach from None

    async def _erase(self, project: Project, actor: str, give_up: float) -> Erasure:
        erasure = await self._erasures.begin(project, actor)
        if erasure.done is not None:
            return erasure
        while ids := await self._tasks.some(project.id, _BATCH):
            await self._erase_tasks(project.id, ids)
            if time.monotonic() > give_up:
                return await self._erasures.get(project.id) or erasure
        for finetune in await self._finetunes.list(project.id):
            await self._erase_finetune(finetune)
        await self._names.forget(project)
        looked_at = await self._look_through(project.id)
        erasure = await self._erasures.end(project, await self._entries(project), looked_at)
        # Else the server's log of writes tells of what is gone until it is rewritten by itself. Some forbid it.
        with contextlib.suppress(ResponseError):
            await self._redis.bgrewriteaof()
        return erasure

    async def _erase_tasks(self, project: str, ids: Sequence[str]) -> None:
        await self._tasks.end(project, ids)
        checkpoints = set(await self._objects.keys(CHECKPOINTS.rstrip("/")))
        folders = {each: [f"{place}/{each}" for place in PLACES] for each in ids}
        files = {each: checkpoint_of(each) for each in ids if checkpoint_of(each) in checkpoints}
        await self._delete(project, folders, files)
        await self._tasks.forget(project, ids)

    async def _erase_finetune(self, finetune: Finetune) -> None:
        await self._delete(finetune.project, {finetune.id: [f"finetunes/{finetune.id}"]}, {})
        await self._finetunes.remove(finetune, self._erasures.key(finetune.project))

    async def _delete(self, project: str, folders: Mapping[str, Sequence[str]], files: Mapping[str, str]) -> None:
        """Deletes what is in these folders, and these files, each by whose it is; notes how many objects first."""
        flat = [(owner, folder) for owner, own in folders.items() for folder in own]
        counts = Counter(files.keys())
        for (owner, _), keys in zip(flat, await self._objects.listed([folder for _, folder in flat]), strict=True):
            counts[owner] += len(keys)
        await self._erasures.note_listed(project, +counts)
        await self._objects.delete_prefixes([folder for _, folder in flat])
        await self._objects.delete(list(files.values()))

    async def _look_through(self, project: str) -> int:
        """Erases what is the project's among all keys, until there is nothing. Returns how many keys there are."""
        while True:
            found, looked_at = await self._pass(project)
            if not found:
                return looked_at

    async def _pass(self, project: str) -> tuple[bool, int]:
        """Looks at all keys once. Whether that found what no index knew, and how many keys there were."""
        pattern, cursor, found, looked_at = f"{_literal(self._prefix)}*", 0, False, 0
        replies = re.compile(re.escape(self._prefix) + f"(call:|idempotency:{re.escape(project)}:[0-9a-f]+$)")
        while True:
            page = self._redis.scan(cursor, match=pattern, count=_PAGE)
            cursor, keys = await cast(Awaitable[tuple[int, list[str]]], page)
            looked_at += len(keys)
            if ids := await self._owned(project, "task:", keys):
                found = True
                await self._erase_tasks(project, ids)
            for finetune_id in await self._owned(project, "finetune:", keys):
                finetune = await self._finetunes.get(finetune_id, project)
                if finetune is not None:
                    found = True
                    await self._erase_finetune(finetune)
            await self._tasks.forget_replies(project, [key for key in keys if replies.match(key)])
            if cursor == 0:
                return found, looked_at

    async def _owned(self, project: str, kind: str, keys: Sequence[str]) -> list[str]:
        """Ids of the records of this kind among the keys that are the project's."""
        start = self._prefix + kind
        records = [key for key in keys if key.startswith(start)]
        pipe = self._redis.pipeline(transaction=False)
        for key in records:
            pipe.hget(key, "project")
        owners = await pipe.execute() if records else []
        return [key.removeprefix(start) for key, owner in zip(records, owners, strict=True) if owner == project]

    async def _entries(self, project: Project) -> int:
        """How many entries of its organization's ledger are about the project."""
        found, before = 0, None
        while True:
            entries, before = await self._credits.ledger(project.organization, _PAGE, before)
            found += sum(entry.about.get("project") == project.id for entry in entries)
            if before is None:
                return found


def _literal(text: str) -> str:
    """As a pattern of Redis that matches nothing else."""
    return re.sub(r"([\\*?\[\]^-])", r"\\\1", text)
