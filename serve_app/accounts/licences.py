"""Licences of models that an organization runs itself, and its usage reports.

| key | kind | holds |
|---|---|---|
| `gen:licences:{organization}` | hash | model slug to time of the licence, epoch seconds |
| `gen:generations:{organization}:{day}` | hash | model slug to generations reported that day |
| `gen:report:{id}` | string | present for a minute after a report was counted |

The step that counts a report looks up the licence, so a change of it applies to the next report.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final, cast

from redis.asyncio import Redis

from serve_app.accounts.audit import AuditLog
from serve_app.accounts.history import counts_by_day

_REPORT: Final = (Path(__file__).parent / "report_usage.lua").read_text()


class NotLicensed(Exception):
    """The organization has no licence for the model."""


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
        """Returns model slugs with the times of their licences, epoch seconds."""
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(organization)))
        return {model: float(since) for model, since in sorted(raw.items())}

    async def license(self, organization: str, model: str, actor: str) -> None:
        transaction = self._redis.pipeline(transaction=True)
        transaction.hsetnx(self._key(organization), model, str(time.time()))
        self._audit.note(transaction, organization, actor, "license model", model)
        await transaction.execute()

    async def withdraw(self, organization: str, model: str, actor: str) -> bool:
        """Returns False if there is no such licence."""
        if model not in await self.list(organization):
            return False
        transaction = self._redis.pipeline(transaction=True)
        transaction.hdel(self._key(organization), model)
        self._audit.note(transaction, organization, actor, "withdraw licence", model)
        return bool((await transaction.execute())[0])

    async def report(self, organization: str, model: str, generations: int) -> None:
        """Counts generations of today. Raises NotLicensed."""
        licences, counts = self._key(organization), f"{self._prefix}generations:{organization}:"
        report = f"{self._prefix}report:{uuid.uuid4()}"
        if await self._report(keys=[licences], args=[licences, counts, model, generations, report]) < 0:
            raise NotLicensed

    async def list_generations(self, organization: str, since: date, until: date) -> list[Generations]:
        """Returns reported generations by day and model, from `since` to `until`, both included."""
        counts_per_day = await counts_by_day(self._redis, f"{self._prefix}generations:{organization}", since, until)
        return [
            Generations(day, model, int(count))
            for day, counts in counts_per_day.items()
            for model, count in sorted(counts.items())
        ]

    def _key(self, organization: str) -> str:
        return f"{self._prefix}licences:{organization}"
