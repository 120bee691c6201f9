"""Credits of an organization: balance, holds, grants, ledger.

Amounts are integer milli-credits. 1000 of them are one credit, 0.01 USD.

| key | kind | holds |
|---|---|---|
| `gen:credits:{organization}` | hash | `balance` to spend, `held` for active tasks, `spent`, `granted` |
| `gen:ledger:{organization}` | stream | latest changes of the balance: `kind amount balance` and the reason |
| `gen:grants:{organization}` | hash | grant id to amount, so that a repeated grant is made once |
| `gen:spent:{project}:{window}:{day}` | string | spent and held in the window that begins on that day |
| `gen:usage:{organization}:{day}` | hash | `tasks` and `cost` by project and endpoint, settled that day |
| `gen:made` | hash | `tasks` that became ready since the store began, and their `cost`, by endpoint |
| `gen:paid` | zset | cost of a project's tasks since the store began |

`granted = balance + held + spent`, and the amounts in a ledger add up to the balance. Each step is one script, so this
holds after every step, even if a process was killed. Tasks move money in the scripts that create and end them
(`tasks/money.lua`). Kinds of entries: `grant`, `hold` of a price (negative), `settle` and `return` with the amount that
comes back. Days are numbered from 1970-01-01. `history.py` says how many entries and days are kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, cast

from redis.asyncio import Redis

from serve_app.accounts.history import counts_by_day, page_stream
from serve_app.accounts.windows import Window, compute_windows, day_number

DEFAULT_ORGANIZATION: Final = "default"
MAX_GRANT: Final = 10**15
"""Largest grant: beyond it, Lua's numbers are not exact to a milli-credit."""
MAX_DAYS: Final = 366
"""Maximum length of a usage report, days."""
_AMOUNTS: Final = ("balance", "held", "spent", "granted")
_BATCH: Final = 500
"""Organizations whose amounts are read at once."""
_GRANT: Final = (Path(__file__).parent / "grant.lua").read_text()


def format_credits(millicredits: int) -> str:
    """Formats an amount as credits, exactly: `1234567.891`."""
    return f"{millicredits / 1000:.3f}".rstrip("0").rstrip(".")


class InsufficientBalance(Exception):
    """The balance is less than a negative grant takes back."""

    def __init__(self, balance: int) -> None:
        super().__init__(balance)
        self.balance = balance


@dataclass(frozen=True, slots=True)
class Balance:
    balance: int
    held: int
    spent: int
    granted: int


@dataclass(frozen=True, slots=True)
class BalanceChange:
    id: str
    """Milliseconds since 1970, a dash, and a number. Entries are ordered by id."""
    at: float
    """Epoch seconds."""
    kind: str
    amount: int
    balance: int
    """Balance after the entry."""
    about: Mapping[str, str]
    """`task project endpoint cost` of holds and their ends, `grant by note` of grants."""


@dataclass(frozen=True, slots=True)
class Usage:
    day: date
    project: str
    endpoint: str
    tasks: int
    cost: int


@dataclass(frozen=True, slots=True)
class Spending:
    """Spending of a project in one window, with holds."""

    window: Window
    spent: int
    since: date
    until: date
    """First day of the next window."""


class CreditStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._grant = redis.register_script(_GRANT)

    async def balance(self, organization: str) -> Balance:
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}credits:{organization}"))
        return Balance(*(int(raw.get(name, 0)) for name in _AMOUNTS))

    async def grant(self, organization: str, grant_id: str, amount: int, by: str, note: str = "") -> tuple[int, bool]:
        """Adds `amount`, which may be negative, to the balance. Returns the balance and whether this call changed it.

        A grant with the id of an earlier one changes nothing. Raises InsufficientBalance, or ValueError for more than
        `MAX_GRANT`.
        """
        if abs(amount) > MAX_GRANT:
            raise ValueError(f"a grant is at most {MAX_GRANT / 1000:g} credits")
        code, balance = await self._grant(
            keys=[self._prefix], args=[self._prefix, organization, grant_id, amount, by, note]
        )
        if code == 0:
            raise InsufficientBalance(balance)
        return balance, code == 1

    async def ledger(
        self, organization: str, limit: int, before: str | None = None
    ) -> tuple[list[BalanceChange], str | None]:
        """Returns up to `limit` entries older than `before`, newest first, and the last one's id if more follow."""
        rows, following = await page_stream(self._redis, f"{self._prefix}ledger:{organization}", limit, before)
        return [_entry(entry_id, fields) for entry_id, fields in rows], following

    async def usage(self, organization: str, since: date, until: date) -> list[Usage]:
        """Returns settled tasks by day, project and endpoint, from `since` to `until`, at most `MAX_DAYS` days."""
        last = until if (until - since).days < MAX_DAYS else since + timedelta(days=MAX_DAYS - 1)
        counts_per_day = await counts_by_day(self._redis, f"{self._prefix}usage:{organization}", since, last)
        return [
            Usage(day, project, endpoint, tasks=int(counts[field]), cost=int(counts[f"cost|{project}|{endpoint}"]))
            for day, counts in counts_per_day.items()
            for field in sorted(counts)
            if field.startswith("tasks|")
            for _, project, endpoint in [field.split("|", 2)]
        ]

    async def sums(self) -> Balance:
        """Returns the sums over all organizations, each of which it reads."""
        ids = await cast(Awaitable[set[str]], self._redis.smembers(f"{self._prefix}organizations"))
        organizations, sums = sorted(ids | {DEFAULT_ORGANIZATION}), [0, 0, 0, 0]
        for start in range(0, len(organizations), _BATCH):
            pipe = self._redis.pipeline(transaction=False)
            for organization in organizations[start : start + _BATCH]:
                pipe.hmget(f"{self._prefix}credits:{organization}", *_AMOUNTS)
            rows: list[list[str | None]] = await pipe.execute()
            sums = [total + sum(int(row[n] or 0) for row in rows) for n, total in enumerate(sums)]
        return Balance(*sums)

    async def sum_by_endpoint(self) -> dict[str, tuple[int, int]]:
        """Returns tasks that became ready since the store began, and their cost, by endpoint."""
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}made"))
        endpoints = [field.partition("|")[2] for field in raw if field.startswith("tasks|")]
        return {each: (int(raw[f"tasks|{each}"]), int(raw[f"cost|{each}"])) for each in endpoints}

    async def list_top_spenders(self, limit: int) -> dict[str, int]:
        """Returns the costs of the `limit` projects with the highest costs since the store began."""
        ranking = (
            await self._redis.zrange(f"{self._prefix}paid", 0, limit - 1, desc=True, withscores=True) if limit else []
        )
        return {project: int(cost) for project, cost in cast(list[tuple[str, float]], ranking)}

    async def spending(self, project: str) -> list[Spending]:
        """Returns the spending in the current day, week and month."""
        seconds, _ = await cast(Awaitable[tuple[int, int]], self._redis.time())
        windows = compute_windows(datetime.fromtimestamp(int(seconds), UTC).date())
        keys = [f"{self._prefix}spent:{project}:{name}:{day_number(first)}" for name, (first, _) in windows.items()]
        spent = await cast(Awaitable[list[str | None]], self._redis.mget(keys))
        return [
            Spending(name, int(amount or 0), first, following)
            for (name, (first, following)), amount in zip(windows.items(), spent, strict=True)
        ]


def _entry(entry_id: str, fields: dict[str, str]) -> BalanceChange:
    about = {name: value for name, value in fields.items() if name not in ("kind", "amount", "balance")}
    at = int(entry_id.partition("-")[0]) / 1000
    return BalanceChange(entry_id, at, fields["kind"], int(fields["amount"]), int(fields["balance"]), about)
