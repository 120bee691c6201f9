"""Credits of an organization: balance, holds, grants, ledger.

Amounts are integer milli-credits; 1000 are one credit, which is 0.01 USD.

| key | kind | holds |
|---|---|---|
| `gen:credits:{organization}` | hash | `balance` to spend, `held` for tasks on their way, `spent`, `granted` |
| `gen:ledger:{organization}` | stream | the latest changes of the balance: `kind amount balance`, what for |
| `gen:grants:{organization}` | hash | grant id to amount: a grant that is repeated is made once |
| `gen:spent:{project}:{window}:{day}` | string | spent and held in the window that begins on that day |
| `gen:usage:{organization}:{day}` | hash | `tasks` and `cost` by project and endpoint, settled that day |
| `gen:made` | hash | since the store began, `tasks` that became ready and their `cost`, by endpoint |
| `gen:paid` | zset | since the store began, the cost of a project's tasks |

`granted = balance + held + spent`, and the amounts in a ledger add up to the balance: after every step, whatever was
killed before, since each step is one script. Tasks move money in those that make and end them (`tasks/money.lua`).
Kinds of entries: `grant`, `hold` of a price (negative), `settle` and `return` with what comes back of it. Days are
numbered from 1970-01-01. Entries and days are kept as `audit.py` says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

from redis.asyncio import Redis

from serve_app.accounts.audit import Window, compute_windows, counts_by_day, day_number, page

DEFAULT_ORGANIZATION: Final = "default"
MAX_GRANT: Final = 10**15
"""Beyond it, Lua's numbers have no place for single milli-credits."""
MAX_DAYS: Final = 366
"""Of a usage report."""
_AMOUNTS: Final = ("balance", "held", "spent", "granted")
_AT_A_TIME: Final = 500
"""Organizations whose amounts are asked for at once."""
_GRANT = (Path(__file__).parent / "grant.lua").read_text()


def format_credits(millicredits: int) -> str:
    """As credits, exact: `1234567.891`."""
    return f"{millicredits / 1000:.3f}".rstrip("0").rstrip(".")


class TooLittle(Exception):
    """There is less than is to be taken back."""

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
class Entry:
    id: str
    """Milliseconds since 1970, a dash, and a number: entries are in order of it."""
    at: float
    """Epoch seconds."""
    kind: str
    amount: int
    balance: int
    """After it."""
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
    """Of a project in one window, holds included."""

    window: Window
    spent: int
    since: date
    until: date
    """The first day of the next window."""


class Credits:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._grant = redis.register_script(_GRANT)

    async def balance(self, organization: str) -> Balance:
        """All zero for one that never had any."""
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}credits:{organization}"))
        return Balance(*(int(raw.get(name, 0)) for name in _AMOUNTS))

    async def grant(self, organization: str, grant_id: str, amount: int, by: str, note: str = "") -> tuple[int, bool]:
        """Gives `amount`, or takes it back where negative. Returns the balance, and whether this call did it.

        A grant that was made before under the same id changes nothing. Raises TooLittle, or ValueError for an amount
        that is not to be reckoned with.
        """
        if abs(amount) > MAX_GRANT:
            raise ValueError(f"a grant is at most {MAX_GRANT / 1000:g} credits")
        code, balance = await self._grant(
            keys=[self._prefix], args=[self._prefix, organization, grant_id, amount, by, note]
        )
        if code == 0:
            raise TooLittle(balance)
        return balance, code == 1

    async def ledger(self, organization: str, limit: int, before: str | None = None) -> tuple[list[Entry], str | None]:
        """Up to `limit` entries, newest first, older than the entry `before`; and the last one's id if more follow."""
        rows, following = await page(self._redis, f"{self._prefix}ledger:{organization}", limit, before)
        return [_entry(entry_id, fields) for entry_id, fields in rows], following

    async def usage(self, organization: str, since: date, until: date) -> list[Usage]:
        """What was settled from `since` to `until`, both included, by day, project and endpoint. At most MAX_DAYS."""
        last = until if (until - since).days < MAX_DAYS else since + timedelta(days=MAX_DAYS - 1)
        counts_per_day = await counts_by_day(self._redis, f"{self._prefix}usage:{organization}", since, last)
        return [
            Usage(
                day,
                *_parse_usage_field(field),
                tasks=int(counts[field]),
                cost=int(counts[f"cost|{field.partition('|')[2]}"]),
            )
            for day, counts in counts_per_day.items()
            for field in sorted(counts)
            if field.startswith("tasks|")
        ]

    async def sums(self) -> Balance:
        """Of all organizations together. Reads each one's."""
        ids = await cast(Awaitable[set[str]], self._redis.smembers(f"{self._prefix}organizations"))
        organizations, sums = sorted(ids | {DEFAULT_ORGANIZATION}), [0, 0, 0, 0]
        for start in range(0, len(organizations), _AT_A_TIME):
            pipe = self._redis.pipeline(transaction=False)
            for organization in organizations[start : start + _AT_A_TIME]:
                pipe.hmget(f"{self._prefix}credits:{organization}", *_AMOUNTS)
            rows: list[list[str | None]] = await pipe.execute()
            sums = [total + sum(int(row[n] or 0) for row in rows) for n, total in enumerate(sums)]
        return Balance(*sums)

    async def sum_by_endpoint(self) -> dict[str, tuple[int, int]]:
        """By endpoint, how many tasks became ready since the store began, and what they cost."""
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(f"{self._prefix}made"))
        endpoints = [field.partition("|")[2] for field in raw if field.startswith("tasks|")]
        return {each: (int(raw[f"tasks|{each}"]), int(raw[f"cost|{each}"])) for each in endpoints}

    async def list_top_spenders(self, most: int) -> dict[str, int]:
        """What those `most` projects paid that paid most, since the store began."""
        ranking = (
            await self._redis.zrange(f"{self._prefix}paid", 0, most - 1, desc=True, withscores=True) if most else []
        )
        return {project: int(cost) for project, cost in cast(list[tuple[str, float]], ranking)}

    async def spending(self, project: str) -> list[Spending]:
        """Of the present day, week and month."""
        seconds, _ = await cast(Awaitable[tuple[int, int]], self._redis.time())
        windows = compute_windows(datetime.fromtimestamp(int(seconds), UTC).date())
        keys = [f"{self._prefix}spent:{project}:{name}:{day_number(first)}" for name, (first, _) in windows.items()]
        spent = await cast(Awaitable[list[str | None]], self._redis.mget(keys))
        return [
            Spending(name, int(amount or 0), first, following)
            for (name, (first, following)), amount in zip(windows.items(), spent, strict=True)
        ]


def _parse_usage_field(field: str) -> tuple[str, str]:
    _, project, endpoint = field.split("|", 2)
    return project, endpoint


def _entry(entry_id: str, fields: dict[str, Any]) -> Entry:
    about = {name: value for name, value in fields.items() if name not in ("kind", "amount", "balance")}
    at = int(entry_id.partition("-")[0]) / 1000
    return Entry(entry_id, at, fields["kind"], int(fields["amount"]), int(fields["balance"]), about)
