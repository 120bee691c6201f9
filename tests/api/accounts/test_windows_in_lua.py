"""The scripts count spending by the same windows that Python reports it by."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

import serve_app.tasks
from serve_app.accounts.audit import day_number, windows_of
from serve_app.storage.scripts import PRELUDE, joined

SCRIPTS = Path(serve_app.tasks.__file__).parent
WINDOWS_OF_EACH = """
local out = {}
for n, ms in ipairs(cjson.decode(ARGV[3])) do out[n] = windows_of(ms) end
return cjson.encode(out)
"""
DAY_MS = 86_400_000


async def windows_in_lua(redis: Redis, times_ms: list[int]) -> list[list[list[Any]]]:
    text = joined(PRELUDE, SCRIPTS / "money.lua") + WINDOWS_OF_EACH
    return json.loads(await redis.eval(text, 0, "unused:", "lane", json.dumps(times_ms)))  # type: ignore[misc]


def expected(day: date) -> list[list[Any]]:
    return [[name, day_number(first), day_number(following)] for name, (first, following) in windows_of(day).items()]


async def assert_agreement(redis: Redis, days: Iterable[date]) -> None:
    chosen = list(days)
    for within in (0, 1, DAY_MS // 2, DAY_MS - 1):
        found = await windows_in_lua(redis, [day_number(day) * DAY_MS + within for day in chosen])
        for day, windows in zip(chosen, found, strict=True):
            assert windows == expected(day), (day, within)


async def test_every_day_of_leap_common_and_century_years(redis: Redis) -> None:
    for year in (1970, 1972, 2000, 2025, 2026, 2028, 2100, 2400):
        await assert_agreement(redis, (date(year, 1, 1) + timedelta(days=n) for n in range(367)))


async def test_the_ends_of_every_month_for_two_centuries(redis: Redis) -> None:
    firsts = [date(year, month, 1) for year in range(1970, 2171) for month in range(1, 13)]
    lasts = [first - timedelta(days=1) for first in firsts[1:]]
    await assert_agreement(redis, firsts + lasts)


async def test_days_far_apart(redis: Redis) -> None:
    # 997 is a prime: the sweep meets every weekday and every part of a month.
    await assert_agreement(redis, (date(1970, 1, 1) + timedelta(days=n) for n in range(0, 2_900_000, 997)))
