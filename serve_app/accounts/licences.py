"""Licences of models that an organization runs itself, and its usage reports.

| key | kind | holds |
|---|---|---|
| `gen:licences:{organization}` | hash | model slug to when it was licensed, epoch seconds |
| `gen:generations:{organization}:{day}` | hash | model slug to how many were reported that day |
| `gen:report:{id}` | string | that a report was counted, for a minute |

Whether there is a licence is looked up at every report, in the step that counts it: a change holds from the next on.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import cast

from redis.asyncio import Redis

from serve_app.accounts.audit import AuditLog, counts_by_day

_REPORT = (Path(__file__).parent / "report_usage.lua").read_text()


class NotLicensed(Exception):
    """The organization may not use the model."""


@dataclass(frozen=True, slots=True)
class Generations:
    day: date
    model: str
    count: int


class LicenceStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._audit = AuditLog(redis, prefix)
        self._report = redis.register_script(_REPORT)

    async def list(self, organization: str) -> dict[str, float]:
        """Model slugs, and since when each is licensed, epoch seconds."""
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(organization)))
        return {model: float(since) for model, since in sorted(raw.items())}

    async def license(self, organization: str, model: str, actor: str) -> None:
        transaction = self._redis.pipeline(transaction=True)
        transaction.hsetnx(self._key(organization), model, str(time.time()))
        self._audit.note(transaction, organization, actor, "license model", model)
        await transaction.execute()

    async def withdraw(self, organization: str, model: str, actor: str) -> bool:
        """False when there is no such licence."""
        if model not in await self.list(organization):
            return False
        transaction = self._redis.pipeline(transaction=True)
        transaction.hdel(self._key(organization), model)
        self._audit.note(transaction, organization, actor, "withdraw licence", model)
        return bool((await transaction.execute())[0])

    async def report(self, organization: str, model: str, generations: int) -> None:
        """Counts them for today. Raises NotLicensed."""
        counts, report = f"{self._prefix}generations:{organization}:", f"{self._prefix}report:{uuid.uuid4()}"
        if (
            await self._report(
                keys=[self._key(organization)], args=[self._key(organization), counts, model, generations, report]
            )
            < 0
        ):
            raise NotLicensed

    async def list_generations(self, organization: str, since: date, until: date) -> list[Generations]:
        """From `since` to `until`, both included, by day and model."""
        counts_per_day = await counts_by_day(self._redis, f"{self._prefix}generations:{organization}", since, until)
        return [
            Generations(day, model, int(count))
            for day, counts in counts_per_day.items()
            for model, count in sorted(counts.items())
        ]

    def _key(self, organization: str) -> str:
        return f"{self._prefix}licences:{organization}"
