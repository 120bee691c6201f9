"""Days, ISO weeks and months, in UTC: what spending limits count by. `tasks/money.lua` counts by the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

Window: TypeAlias = Literal["day", "week", "month"]
WINDOWS: Final[tuple[Window, ...]] = ("day", "week", "month")

_EPOCH: Final = date(1970, 1, 1)


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return (day - _EPOCH).days


def windows_of(day: date) -> Mapping[Window, tuple[date, date]]:
    """By window, its first day and that of the next."""
    monday = day - timedelta(days=day.weekday())
    first = day.replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return MappingProxyType(
        {
            "day": (day, day + timedelta(days=1)),
            "week": (monday, monday + timedelta(days=7)),
            "month": (first, following),
        }
    )


def midnight(day: date) -> datetime:
    """Its beginning."""
    return datetime.combine(day, time(), UTC)
