"""Windows of spending limits: the UTC day, week and month."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

Window: TypeAlias = Literal["day", "week", "month"]
WINDOWS: Final[tuple[Window, ...]] = ("day", "week", "month")

_EPOCH: Final = date(1970, 1, 1)


def day_number(day: date) -> int:
    """Returns the days since 1970-01-01."""
    return (day - _EPOCH).days


def compute_windows(day: date) -> Mapping[Window, tuple[date, date]]:
    """Returns the first day of each window around `day`, and the first day of the next window."""
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
    """Returns the beginning of the day."""
    return datetime.combine(day, time(), UTC)
