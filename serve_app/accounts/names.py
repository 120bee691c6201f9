"""The names of a project's keys, which are its people's own words: forgotten where its data is erased.

The keys themselves stay, under their ids. In the audit log entries stay, too, but for the name. A segment of it that
has one is written anew and takes the place of the old one in the index, whose object is deleted last: who begins anew
after a crash finds it by the index.
"""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import cast

from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.accounts.erasures import ErasureStore
from serve_app.accounts.journal import Journal
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.projects import Project

_HERE = Path(__file__).parent


class KeyNames:
    def __init__(self, redis: Redis, prefix: str, objects: ObjectStore) -> None:
        self._redis = redis
        self._prefix = prefix
        self._keys = KeyStore(redis, prefix)
        self._audit = Journal(redis, prefix, "audit", objects)
        self._erasures = ErasureStore(redis, prefix)
        self._name_key, self._unname = (
            redis.register_script((_HERE / f"{name}.lua").read_text()) for name in ("name_key", "unname")
        )

    async def forget(self, project: Project) -> None:
        """Raises ArchiveOutOfReach."""
        erasure = self._erasures.key(project.id)
        digests = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}keys"))
        for key in await self._keys.list():  # also those of which the project does not know yet
            if key.project != project.id:
                continue
            record = f"{self._prefix}key:{digests[key.id]}"
            await self._name_key(keys=[self._prefix], args=[record, erasure])
        stream = self._audit.stream(project.organization)
        await self._unname(keys=[self._prefix], args=[stream, project.id, erasure])
        await self._audit.segments.rewrite(
            project.organization,
            lambda row: {name: row[name] for name in row if name != "name" or row.get("project") != project.id},
            erasure,
            "names",
        )
