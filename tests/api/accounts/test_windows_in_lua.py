"""The scripts count spending by the same windows that Python reports it by."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

import serve_app.tasks
from serve_app.accounts.windows import compute_windows, day_number
from serve_app.storage.scripts import PRELUDE, concat_scripts

SCRIPTS = Path(serve_app.tasks.__file__).parent
WINDOWS_SCRIPT = """
local out = {}
for n, ms in ipairs(cjson.decode(ARGV[3])) do out[n] = compute_windows(ms) end
return cjson.encode(out)
"""
DAY_MS = 86_400_000


async def windows_in_lua(redis: Redis, times_ms: list[int]) -> list[list[list[Any]]]:
    text = concat_scripts(PRELUDE, SCRIPTS / "money.lua") + WINDOWS_SCRIPT
    return json.loads(await redis.eval(text, 0, "unused:", "model", json.dumps(times_ms)))  # type: ignore[misc]


def expected_windows(day: date) -> list[list[Any]]:
    return [
        [name, day_number(first), day_number(following)] for name, (first, following) in compute_windows(day).items()
    ]


async def test_windows_are_the_same_on_every_kind_of_day(redis: Redis) -> None:
    years = [date(year, 1, 1) for year in (1970, 1972, 2000, 2025, 2028, 2100, 2400)]
    firsts = [date(year, month, 1) for year in range(1970, 2171) for month in range(1, 13)]
    days = [year + timedelta(days=n) for year in years for n in range(367)]
    days += firsts + [first - timedelta(days=1) for first in firsts[1:]]
    # 997 is a prime: the sweep meets every weekday and every part of a month.
    days += [date(1970, 1, 1) + timedelta(days=n) for n in range(0, 2_900_000, 997)]
    for within in (0, DAY_MS - 1):
        results = await windows_in_lua(redis, [day_number(day) * DAY_MS + within for day in days])
        for day, windows in zip(days, results, strict=True):
            assert windows == expected_windows(day), (day, within)
