"""Months of usage that are long over move to the object store, and reports have them all the same."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from support.books import ORGANIZATION
from support.executioner import Executioner, Killed

from deployments.contract.objects import ObjectStore
from serve_app.accounts.archive import Archive
from serve_app.accounts.credits import MAX_DAYS, Credits, Usage
from serve_app.accounts.daily_counts import DailyCounts
from serve_app.accounts.licences import Generations, LicenceStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.segments import Row, Segments
from serve_app.accounts.windows import day_number

KEPT_DAYS = 40


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path.as_uri())


@pytest.fixture
async def today(redis: Redis) -> date:
    now: Any = redis.time()
    return datetime.fromtimestamp((await now)[0], UTC).date()


@pytest.fixture
async def archive(redis: Redis, prefix: str, objects: ObjectStore) -> Archive:
    assert await OrganizationStore(redis, prefix).create(ORGANIZATION, "Acme", "test")
    return Archive(redis, prefix, objects, 1000, KEPT_DAYS)


async def counted(redis: Redis, prefix: str, days: Iterable[date]) -> None:
    """As a settlement counts, so many tasks as the day of the month."""
    for day in days:
        counts: Any = {"tasks|p|gen-a": day.day, "cost|p|gen-a": 10 * day.day, "tasks|q|gen-b": 1, "cost|q|gen-b": 0}
        await redis.hset(f"{prefix}usage:{ORGANIZATION}:{day_number(day)}", mapping=counts)


async def kept_days(redis: Redis, prefix: str, kind: str = "usage") -> set[int]:
    """Numbers of the days that Redis has."""
    start = f"{prefix}{kind}:{ORGANIZATION}:"
    return {int(str(key).removeprefix(start)) async for key in redis.scan_iter(f"{start}*", count=1000)}


def last_days(today: date, n: int) -> list[date]:
    return [today - timedelta(days=k) for k in range(n)]


async def year(credits: Credits, today: date) -> list[Usage]:
    return await credits.usage(ORGANIZATION, today - timedelta(days=MAX_DAYS - 1), today)


async def test_reports_have_archived_months(
    redis: Redis, prefix: str, objects: ObjectStore, archive: Archive, today: date
) -> None:
    await counted(redis, prefix, last_days(today, MAX_DAYS))
    credits = Credits(redis, prefix, objects)
    before = await year(credits, today)
    assert len(before) == 2 * MAX_DAYS
    made = await archive.archive_due()
    assert made >= 10
    assert await archive.archive_due() == 0
    kept = await kept_days(redis, prefix)
    assert KEPT_DAYS <= len(kept) <= KEPT_DAYS + 31
    assert kept == {day_number(day) for day in last_days(today, len(kept))}
    assert await year(credits, today) == before
    for n in (3, 45, 100, 300):
        day = today - timedelta(days=n)
        assert await credits.usage(ORGANIZATION, day, day) == [row for row in before if row.day == day]


async def test_a_segment_has_the_days_of_a_month_a_line_each(
    redis: Redis, prefix: str, objects: ObjectStore, archive: Archive
) -> None:
    await counted(redis, prefix, (date(2025, 2, 3), date(2025, 2, 28)))
    assert await archive.archive_due() == 1
    [name] = await objects.keys("archive/usage")
    assert name.startswith(f"archive/usage/{ORGANIZATION}/20250203-0_20250228-0_")
    lines = gzip.decompress(await objects.get(name)).decode().splitlines()
    counts = {"tasks|p|gen-a": "28", "cost|p|gen-a": "280", "tasks|q|gen-b": "1", "cost|q|gen-b": "0"}
    assert json.loads(lines[1]) == {"id": "20250228-0", **counts}
    assert len(lines) == 2


async def test_a_report_reads_no_other_months(
    redis: Redis, prefix: str, objects: ObjectStore, archive: Archive
) -> None:
    days = [date(2025, 2, 3), date(2025, 4, 5), date(2025, 6, 7)]
    await counted(redis, prefix, days)
    assert await archive.archive_due() == 3
    february, april, june = sorted(await objects.keys("archive/usage"))
    await objects.delete([february, june])
    found = await Credits(redis, prefix, objects).usage(ORGANIZATION, date(2025, 3, 1), date(2025, 5, 31))
    assert [(row.day, row.tasks) for row in found] == [(days[1], 5), (days[1], 1)]
    assert "20250405-0" in april


async def test_a_month_follows_once_it_is_over_long_enough(
    redis: Redis, prefix: str, objects: ObjectStore, archive: Archive, today: date
) -> None:
    """Where earlier months were archived before, or had nothing to archive."""
    recent = last_days(today, 80)
    await archive.archive_due()
    await counted(redis, prefix, recent)
    assert await archive.archive_due() == 0
    assert len(await kept_days(redis, prefix)) == 80
    # As if half a year had passed.
    noted = f"{prefix}archived:{ORGANIZATION}"
    assert await redis.hdel(noted, "usage") == 1
    made = await archive.archive_due()
    assert 1 <= made <= 2
    assert {row.day for row in await year(Credits(redis, prefix, objects), today)} == set(recent)


async def test_reported_generations_are_archived_too(
    redis: Redis, prefix: str, objects: ObjectStore, archive: Archive, today: date
) -> None:
    days = last_days(today, 200)
    for day in days:
        await redis.hset(f"{prefix}generations:{ORGANIZATION}:{day_number(day)}", "flux", str(day.day))
    assert await archive.archive_due() >= 4
    assert len(await kept_days(redis, prefix, "generations")) < 80
    found = await LicenceStore(redis, prefix, objects).reported(ORGANIZATION, days[-1], today)
    assert found == [Generations(day, "flux", day.day) for day in reversed(days)]


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_anywhere_no_day_is_lost(
    executioner: Executioner, redis: Redis, prefix: str, today: date, tmp_path: Path, after: bool
) -> None:
    died = 0
    days = [today - timedelta(days=n) for n in (5, 100, 102, 150)]
    for survived in itertools.count():
        own, objects = f"{prefix}{survived}:", ObjectStore((tmp_path / str(survived)).as_uri())
        assert await OrganizationStore(redis, own).create(ORGANIZATION, "Acme", "test")
        await counted(redis, own, days)
        credits, archive = Credits(redis, own, objects), Archive(redis, own, objects, 1000, KEPT_DAYS)
        before = await year(credits, today)
        try:
            with executioner.awaits(survived, after):
                await archive.archive_due()
        except Killed:
            died += 1
            assert await year(credits, today) == before
            await archive.archive_due()
        assert await year(credits, today) == before
        assert await kept_days(redis, own) == {day_number(days[0])}
        if died <= survived:
            break
    assert died >= 8, "of two months an object and a script each, and what comes before"


async def test_archivers_at_the_same_time_do_no_harm(
    redis: Redis, prefix: str, objects: ObjectStore, archive: Archive, today: date
) -> None:
    await counted(redis, prefix, last_days(today, 200))
    credits = Credits(redis, prefix, objects)
    before = await year(credits, today)
    made = await asyncio.gather(*(archive.archive_due() for _ in range(5)))
    assert await archive.archive_due() == 0
    assert len(await objects.keys("archive/usage")) == sum(made)
    assert await year(credits, today) == before


async def test_a_report_has_what_is_archived_between_its_reads(
    redis: Redis, prefix: str, objects: ObjectStore, archive: Archive, today: date, monkeypatch: pytest.MonkeyPatch
) -> None:
    await counted(redis, prefix, last_days(today, 200))
    counts = DailyCounts(redis, prefix, "usage", objects)
    before = await counts.read(ORGANIZATION, today - timedelta(days=300), today)
    read = Segments.between

    async def archive_first(segments: Segments, *args: Any) -> list[Row]:
        assert await archive.archive_due() > 0
        return await read(segments, *args)

    monkeypatch.setattr(Segments, "between", archive_first)
    assert await counts.read(ORGANIZATION, today - timedelta(days=300), today) == before
