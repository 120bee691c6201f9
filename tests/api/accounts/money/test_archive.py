"""Old entries of journals move to the object store, and whoever reads does not notice."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from support.books import ORGANIZATION, assert_books_balance, completed, submitted
from support.executioner import Executioner, Killed
from support.lost_answers import LosingAnswers
from support.redis_contents import values

from deployments.contract.objects import ObjectStore
from serve_app.accounts.archive import Archive
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.credits import Credits, Entry
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.segments import ArchiveOutOfReach, Row, Segments
from serve_app.loops import Loops
from serve_app.tasks.store import TaskStore

ENTRIES = 10
"""That stay at least, and that are in a segment."""


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path.as_uri())


@pytest.fixture
async def credits(redis: Redis, prefix: str, objects: ObjectStore) -> Credits:
    assert await OrganizationStore(redis, prefix).create(ORGANIZATION, "Acme", "test")
    return Credits(redis, prefix, objects)


@pytest.fixture
def archive(redis: Redis, prefix: str, objects: ObjectStore) -> Archive:
    return archiver(redis, prefix, objects)


def archiver(redis: Redis, prefix: str, objects: ObjectStore, entries: int = ENTRIES) -> Archive:
    return Archive(redis, prefix, objects, entries, usage_days=40)


async def granted(credits: Credits, n: int, name: str = "order") -> None:
    """So many entries, of 1, 2, 3, … milli-credits."""
    for k in range(1, n + 1):
        await credits.grant(ORGANIZATION, f"{name}-{k}", k, by="test")


async def ledger(credits: Credits, limit: int = 1000) -> list[Entry]:
    """All of it, in pages."""
    found, before = await credits.ledger(ORGANIZATION, limit)
    while before is not None:
        assert before == found[-1].id
        page, before = await credits.ledger(ORGANIZATION, limit, before)
        found += page
    return found


async def recent(redis: Redis, prefix: str) -> list[Row]:
    """What Redis has of the ledger."""
    rows: Any = redis.xrange(f"{prefix}ledger:{ORGANIZATION}")
    return await rows


async def assert_opening_and_entries_make_the_balance(credits: Credits, redis: Redis, prefix: str) -> None:
    opening: Any = redis.hget(f"{prefix}archived:{ORGANIZATION}", "opening")
    moved = sum(int(fields["amount"]) for _, fields in await recent(redis, prefix))
    assert int(await opening) + moved == (await assert_books_balance(credits)).balance


@pytest.mark.parametrize("limit", [1, 3, 10, 14, 15, 16, 1000])
async def test_the_ledger_reads_on_from_redis_into_the_segments(
    credits: Credits, archive: Archive, redis: Redis, prefix: str, limit: int
) -> None:
    await granted(credits, 35)
    before = await ledger(credits)
    assert await archive.archive_due() == 2
    assert len(await recent(redis, prefix)) == 15
    assert await ledger(credits, limit) == before
    assert await archive.archive_due() == 0
    await assert_opening_and_entries_make_the_balance(credits, redis, prefix)


async def test_any_entry_is_a_cursor(credits: Credits, archive: Archive) -> None:
    await granted(credits, 35)
    before = await ledger(credits)
    await archive.archive_due()
    for n, entry in enumerate(before):
        expected = before[n + 1 : n + 8]
        following = expected[-1].id if n + 8 < len(before) else None
        assert await credits.ledger(ORGANIZATION, 7, entry.id) == (expected, following)


async def test_a_segment_has_the_fields_of_the_entries_a_line_each(
    credits: Credits, archive: Archive, objects: ObjectStore, redis: Redis, prefix: str
) -> None:
    await granted(credits, 20)
    rows = (await recent(redis, prefix))[:ENTRIES]
    await archive.archive_due()
    [name] = await objects.keys("archive/ledger")
    assert name.startswith(f"archive/ledger/{ORGANIZATION}/{rows[0][0]}_{rows[-1][0]}_")
    lines = gzip.decompress(await objects.get(name)).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{"id": row_id, **fields} for row_id, fields in rows]


async def test_fewer_entries_than_twice_what_stays_are_left_alone(
    credits: Credits, archive: Archive, objects: ObjectStore, redis: Redis, prefix: str
) -> None:
    await granted(credits, 2 * ENTRIES - 1)
    before = await recent(redis, prefix)
    assert await archive.archive_due() == 0
    assert (await recent(redis, prefix), await objects.keys("archive")) == (before, [])


async def test_tasks_go_on_being_paid_over_archiving(
    store: TaskStore, credits: Credits, archive: Archive, redis: Redis, prefix: str
) -> None:
    await credits.grant(ORGANIZATION, "start", 10_000, by="test")
    for n in range(40):
        await submitted(store, 100)
        await completed(store, cost=n)
        await archive.archive_due()
        assert len(await recent(redis, prefix)) < 2 * ENTRIES
    await assert_opening_and_entries_make_the_balance(credits, redis, prefix)
    assert len(await ledger(credits, 7)) == 81


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_anywhere_it_does_the_rest_when_it_runs_again(
    executioner: Executioner, redis: Redis, prefix: str, tmp_path: Path, after: bool
) -> None:
    died = 0
    for survived in itertools.count():
        own, objects = f"{prefix}{survived}:", ObjectStore((tmp_path / str(survived)).as_uri())
        assert await OrganizationStore(redis, own).create(ORGANIZATION, "Acme", "test")
        credits, archive = Credits(redis, own, objects), archiver(redis, own, objects)
        await granted(credits, 35)
        before = await ledger(credits)
        try:
            with executioner.awaits(survived, after):
                await archive.archive_due()
        except Killed:
            died += 1
            assert await ledger(credits, 4) == before
            await archive.archive_due()
        assert await ledger(credits, 4) == before
        await assert_opening_and_entries_make_the_balance(credits, redis, own)
        # Nothing was stored twice under two names.
        assert (len(await recent(redis, own)), len(await objects.keys("archive"))) == (15, 2)
        if died <= survived:
            break
    assert died >= 8, "the list of organizations, the time, and three steps a segment"


async def test_archivers_at_the_same_time_do_no_harm(
    credits: Credits, redis: Redis, prefix: str, objects: ObjectStore
) -> None:
    await granted(credits, 65)
    before = await ledger(credits)
    made = await asyncio.gather(*(archiver(redis, prefix, objects).archive_due() for _ in range(5)))
    assert sum(made) == 5
    assert await ledger(credits, 7) == before
    assert (len(await recent(redis, prefix)), len(await objects.keys("archive"))) == (15, 5)
    await assert_opening_and_entries_make_the_balance(credits, redis, prefix)


class Overtaken(ObjectStore):
    """Another archiver does all of its work between this one's object and its script."""

    other: Archive | None = None

    async def put_durably(self, key: str, data: bytes, content_type: str) -> None:
        await super().put_durably(key, data, content_type)
        if self.other is not None:
            other, self.other = self.other, None
            assert await other.archive_due() > 0


@pytest.mark.parametrize("entries", [3, ENTRIES, 14])
async def test_one_that_was_overtaken_trims_nothing(
    credits: Credits, redis: Redis, prefix: str, objects: ObjectStore, tmp_path: Path, entries: int
) -> None:
    """Also by one with other settings, as while they are changed."""
    await granted(credits, 35)
    before = await ledger(credits)
    slow = Overtaken(tmp_path.as_uri())
    slow.other = archiver(redis, prefix, objects, entries)
    await archiver(redis, prefix, slow).archive_due()
    assert slow.other is None
    assert await ledger(credits, 4) == before
    await assert_opening_and_entries_make_the_balance(credits, redis, prefix)


async def test_lost_answers_change_nothing(
    credits: Credits, archive: Archive, redis: Redis, prefix: str, objects: ObjectStore
) -> None:
    await granted(credits, 35)
    before = await ledger(credits)
    losing = LosingAnswers(redis)
    while len(await recent(redis, prefix)) >= 2 * ENTRIES:
        await archive.archive_due()
    assert losing.lost >= 2
    assert await ledger(credits, 4) == before
    assert (len(await recent(redis, prefix)), len(await objects.keys("archive"))) == (15, 2)


async def test_a_page_has_what_is_archived_between_its_reads(
    credits: Credits, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    await granted(credits, 35)
    before = await ledger(credits)
    read, moved = Segments.before, 0

    async def archive_first(segments: Segments, *args: Any) -> list[Row]:
        nonlocal moved
        moved += await archive.archive_due()
        return await read(segments, *args)

    monkeypatch.setattr(Segments, "before", archive_first)
    assert await credits.ledger(ORGANIZATION, 35) == (before, None)
    assert moved == 2
    monkeypatch.setattr(Segments, "before", read)
    assert await ledger(credits) == before


async def test_pages_while_entries_come_and_go_hold_each_once(credits: Credits, archive: Archive) -> None:
    await granted(credits, 30)
    written = asyncio.create_task(granted(credits, 150, "later"))

    async def archive_meanwhile() -> int:
        made = 0
        while not written.done():
            made += await archive.archive_due()
        return made

    archived = asyncio.create_task(archive_meanwhile())
    while not written.done():
        entries = await ledger(credits, 4)
        assert entries[-1].amount == entries[-1].balance == 1
        for newer, older in itertools.pairwise(entries):
            assert newer.balance - newer.amount == older.balance
    await written
    assert await archived > 5
    assert len(await ledger(credits, 4)) == 180


async def test_the_audit_log_is_archived_too(
    credits: Credits, archive: Archive, redis: Redis, prefix: str, objects: ObjectStore
) -> None:
    organizations, audit = OrganizationStore(redis, prefix), AuditLog(redis, prefix, objects)
    for n in range(23):
        await organizations.approve(ORGANIZATION, f"gen-{n}", n % 7, "someone")
        if n == 7:
            transaction = redis.pipeline(transaction=True)
            audit.note(transaction, ORGANIZATION, "someone", "weigh", "scales", balance=5)
            await transaction.execute()
    before, _ = await audit.read(ORGANIZATION, 1000)
    assert len(before) == 25
    assert await archive.archive_due() == 1
    assert await audit.read(ORGANIZATION, 1000) == (before, None)
    assert await audit.read(ORGANIZATION, 5, before[12].id) == (before[13:18], before[17].id)
    # No balance that it could name is the ledger's.
    assert "opening" not in (await values(redis, prefix)).get(f"{prefix}archived:{ORGANIZATION}", {})


async def test_what_cannot_be_read_is_no_end_of_the_ledger(
    credits: Credits, archive: Archive, objects: ObjectStore, redis: Redis, prefix: str
) -> None:
    await granted(credits, 20)
    await archive.archive_due()
    for lacking in (Credits(redis, prefix), credits):
        assert len((await lacking.ledger(ORGANIZATION, ENTRIES - 1))[0]) == ENTRIES - 1
        await objects.delete_prefix("archive")
        with pytest.raises(ArchiveOutOfReach):
            await lacking.ledger(ORGANIZATION, ENTRIES)


class Away(ObjectStore):
    """Out of reach for the first time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = 0
        self.back = asyncio.Event()

    async def put_durably(self, key: str, data: bytes, content_type: str) -> None:
        self.asked += 1
        if self.asked == 1:
            raise OSError("no route")
        await super().put_durably(key, data, content_type)
        self.back.set()


async def test_while_the_object_store_is_away_entries_stay_in_redis(
    redis: Redis, prefix: str, credits: Credits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await granted(credits, 20)
    before = await ledger(credits)
    away = Away(tmp_path.as_uri())
    monkeypatch.setattr("serve_app.accounts.archive._EVERY_S", 0.01)
    async with asyncio.timeout(60):
        loops = Loops({"archive": archiver(redis, prefix, away).run})
        await away.back.wait()
        loops.check()
        await loops.stop()
    assert await ledger(credits, 3) == before


async def test_segments_are_on_disk_before_redis_forgets(
    credits: Credits, archive: Archive, redis: Redis, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    sync = os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    await granted(credits, 20)
    await archive.archive_due()
    [file] = (tmp_path / "archive").rglob("*.gz")
    folder = tmp_path / "archive" / "ledger" / ORGANIZATION
    assert synced == [file, folder, *folder.parents[:3]]
