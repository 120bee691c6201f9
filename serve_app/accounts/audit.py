"""Who changed what in an organization.

| key | kind | holds |
|---|---|---|
| `gen:audit:{organization}` | stream | `actor action subject`, and what it was changed to |

An entry is written in the same transaction as its change: neither is without the other. Entries are kept as
`history.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from serve_app.accounts.history import ENTRIES, page


@dataclass(frozen=True, slots=True)
class Change:
    id: str
    at: float
    """Epoch seconds."""
    actor: str
    action: str
    subject: str
    details: Mapping[str, str]


class AuditLog:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix

    def stream(self, organization: str) -> str:
        return f"{self._prefix}audit:{organization}"

    def note(
        self, transaction: Pipeline, organization: str, actor: str, action: str, subject: str, **details: Any
    ) -> None:
        """Adds the entry to a transaction that makes the change. No details may be secrets."""
        entry: dict[Any, Any] = {"actor": actor, "action": action, "subject": subject}
        entry |= {name: "" if value is None else str(value) for name, value in details.items()}
        transaction.xadd(self.stream(organization), entry, maxlen=ENTRIES)

    async def read(self, organization: str, limit: int, before: str | None = None) -> tuple[list[Change], str | None]:
        """Up to `limit` changes, newest first, older than the change `before`; and the last one's id if more follow."""
        rows, following = await page(self._redis, self.stream(organization), limit, before)
        return [_change(entry_id, dict(fields)) for entry_id, fields in rows], following


def _change(entry_id: str, fields: dict[str, str]) -> Change:
    at = int(entry_id.partition("-")[0]) / 1000
    return Change(entry_id, at, fields.pop("actor"), fields.pop("action"), fields.pop("subject"), fields)
