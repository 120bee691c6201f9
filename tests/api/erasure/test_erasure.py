"""What a project has is gone once it is erased, from Redis, its files and the object store, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from support.crash_injection import CrashInjector, Killed
from support.ledger import FUNDS, ORGANIZATION, assert_books_balance
from support.payloads import new_payload, new_result
from support.redis_dump import read_keys
from support.redis_process import until
from support.tasks import QUEUE, make_due, new_task

from deployments.contract.events import Preview
from deployments.contract.job import checkpoint_key
from deployments.contract.objects import ObjectStore
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.credits import CreditStore
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.deletion import DeletionRecord, ProjectDeletion
from serve_app.dispatcher.maintenance import Maintenance
from serve_app.finetunes import registry
from serve_app.finetunes.registry import FinetuneDeleted, FinetuneRegistry
from serve_app.inputs.ssrf import parse_destination
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.submission.errors import StorageUnreachable
from serve_app.tasks.rejections import ProjectClosed
from serve_app.tasks.scripts import ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, NewTask, Status, Webhook
from serve_app.webhooks.outbox import AttemptRecord, DeliveryOutcome, DestinationHealth, Outbox

MARK = "Zq7Wmarkk"
"""Stands in whatever is of the project that is erased, and in nothing else."""
PROJECT = Project("shop", ORGANIZATION)
NEIGHBOUR = "neighbour"
PRICE = 100


@dataclass
class House:
    """A service with two projects of one organization, both with something of every kind."""

    redis: Redis
    prefix: str
    folder: Path

    def __post_init__(self) -> None:
        self.objects = ObjectStore(self.folder.as_uri())
        self.tasks = TaskStore(self.redis, self.prefix)
        self.finetunes = FinetuneRegistry(self.redis, self.prefix)
        self.credits = CreditStore(self.redis, self.prefix)
        self.projects = ProjectStore(self.redis, self.prefix)
        self.leased: dict[str, Lease] = {}

    async def furnish(self) -> None:
        assert await OrganizationStore(self.redis, self.prefix).create(ORGANIZATION, "Acme", "test")
        await self.credits.grant(ORGANIZATION, "first", FUNDS, by="test")
        for project, word in ((PROJECT.id, MARK), (NEIGHBOUR, "beside")):
            assert await self.projects.create(project, ORGANIZATION, "test")
            await self._move_in(project, word)
        for project, word in ((NEIGHBOUR, "beside"), (PROJECT.id, MARK)):
            await self._make_key(project, word)

    async def erase(self, within_s: float = float("inf")) -> DeletionRecord:
        eraser = ProjectDeletion(self.redis, self.prefix, self.objects)
        return await eraser.erase(await self.projects.find(PROJECT.id) or PROJECT, "test", within_s)

    async def find_word(self, word: str) -> list[str]:
        """Where the word stands, in names and contents: keys of Redis, and of objects.

        But for replies to calls of dispatchers and senders, which expire within seconds.
        """
        entries = await read_keys(self.redis, self.prefix)
        calls = f"{self.prefix}call:"
        files = [
            key for key, value in entries.items() if (word in key or word in repr(value)) and not key.startswith(calls)
        ]
        for file in self.folder.rglob("*"):
            data = file.read_bytes() if file.is_file() else b""
            if word.encode() in data or word in file.name:
                files.append(str(file.relative_to(self.folder)))
        return sorted(files)

    async def _make_key(self, project: str, word: str) -> None:
        await KeyStore(self.redis, self.prefix).create(f"key of {word}", project, organization=ORGANIZATION)

    async def _move_in(self, project: str, word: str) -> None:
        for _ in range(2):
            await self._make_key(project, word)
        delivered = await self._submit(project, word)
        await self._end(delivered, word, Status.READY)
        outbox = Outbox(self.redis, self.prefix)
        [claim] = await outbox.claim(1)
        await outbox.record(claim, AttemptRecord(1.0, 200, text=word), DeliveryOutcome.DELIVERED)
        undelivered = await self._submit(project, word)
        await self._end(undelivered, word, Status.REQUEST_MODERATED)
        [claim] = await outbox.claim(1)
        await outbox.record(
            claim, AttemptRecord(1.0, 500, text=word), DeliveryOutcome.RETRY, wait_s=3600, health=DestinationHealth.DOWN
        )
        running = await self._submit(project, word)
        [self.leased[project]] = await self.tasks.lease(QUEUE, 1, 100)
        assert self.leased[project].id == running.id
        await self.tasks.advance(QUEUE, running.id, 1, Status.GENERATING)
        await self.objects.put(checkpoint_key(running.id), word.encode(), "application/octet-stream")
        await self._submit(project, word, queue="another")
        reserved = new_task(project=project).id
        await self.tasks.reservations.reserve(reserved, project)
        await self.objects.put(f"inputs/{reserved}/0.png", word.encode(), "image/png")
        finetune = await self.finetunes.begin(f"{word} ink", project, "gen-test", QUEUE)
        await self.objects.put(finetune.key, word.encode(), "application/octet-stream")
        await self.finetunes.finish(finetune, rank=1, layers=1, size=1)

    async def _submit(self, project: str, word: str, queue: str = QUEUE) -> NewTask:
        url = f"http://{word.lower()}.test/{word}"
        task = new_task(
            project=project,
            queue=queue,
            organization=ORGANIZATION,
            price=PRICE,
            payload=new_payload(prompt=word),
            user=word,
            reply=f'{{"webhook_url": "{url}"}}',
            webhook=Webhook(url, parse_destination(url), "http://service.test"),
        )
        await self.objects.put(f"inputs/{task.id}/0.png", word.encode(), "image/png")
        await self.tasks.submit(replace(task, idempotency_key=task.id, body_hash="x"))
        return task

    async def _end(self, task: NewTask, word: str, status: Status) -> None:
        [lease] = await self.tasks.lease(QUEUE, 1, 100)
        await self.objects.put(f"results/{task.id}/1/image.png", word.encode(), "image/png")
        result = new_result(f"results/{task.id}/1/image.png", prompt=word)
        assert await self.tasks.complete(QUEUE, lease.id, lease.attempt, status, result=result, details={"why": word})


@pytest.fixture
async def house(redis: Redis, prefix: str, tmp_path: Path) -> House:
    house = House(redis, prefix, tmp_path / "objects")
    await house.furnish()
    return house


async def test_all_that_a_project_has_is_gone_and_its_neighbour_has_what_it_had(house: House) -> None:
    whole = await house.find_word(MARK)
    assert len(whole) > 15
    before = await house.find_word("beside")
    erasure = await house.erase()
    assert await house.find_word(MARK) == await house.find_word(MARK.lower()) == []
    assert await house.find_word("beside") == before
    assert (erasure.project, erasure.by) == (PROJECT.id, "test")
    assert erasure.finished_at is not None
    balance = await assert_books_balance(house.credits)
    assert (balance.held, balance.spent) == (2 * PRICE, 2 * PRICE), "the neighbour's two, and an image of each"


async def test_who_made_which_key_is_known_still(house: House) -> None:
    audit = AuditLog(house.redis, house.prefix)
    before, _ = await audit.read(ORGANIZATION, 1000)
    await house.erase()
    after, _ = await audit.read(ORGANIZATION, 1000)
    assert [each.action for each in after[:2]] == ["erased project", "erase project"]
    for old, new in zip(before, after[2:], strict=True):
        assert (old.id, old.actor, old.action, old.subject) == (new.id, new.actor, new.action, new.subject)
    names = [each.details.get("name") for each in after if each.action == "create key"]
    keys = await KeyStore(house.redis, house.prefix).list(PROJECT.id)
    assert {key.name for key in keys} == {key.id for key in keys}
    assert sorted(names, key=str) == sorted([*(key.id for key in keys), *["key of beside"] * 3])


async def test_nothing_is_added_from_its_beginning_on_and_it_goes_on_where_its_time_was_over(house: House) -> None:
    finetune = await house.finetunes.begin(MARK, PROJECT.id, "gen-test", QUEUE)
    first = await house.erase(within_s=0)
    assert first.finished_at is None
    with pytest.raises(ProjectClosed):
        await house.tasks.submit(new_task(project=PROJECT.id, organization=ORGANIZATION))
    with pytest.raises(registry.FinetunesClosed):
        await house.finetunes.begin("x", PROJECT.id, "gen-test", QUEUE)
    assert (await house.tasks.submit(new_task(project=NEIGHBOUR, organization=ORGANIZATION))).created
    assert await ProjectDeletion(house.redis, house.prefix, house.objects).is_running(PROJECT.id)
    second = await house.erase()
    assert second.started_at == first.started_at
    assert await house.erase() == second
    with pytest.raises(FinetuneDeleted):
        await house.finetunes.finish(finetune, rank=1, layers=1, size=1)
    assert await house.find_word(MARK) == []


async def test_once_it_is_opened_again_an_erasure_is_another(house: House) -> None:
    await house.erase()
    await house.projects.change(PROJECT, {"closed": None}, "test")
    task = new_task(project=PROJECT.id, organization=ORGANIZATION)
    assert (await house.tasks.submit(task)).created
    assert (await house.erase()).finished_at is not None
    assert await house.tasks.reads.get(task.id) is None


async def test_a_worker_that_has_not_heard_of_it_leaves_nothing_behind(house: House) -> None:
    running = house.leased[PROJECT.id]
    task_id, attempt = running.id, running.attempt
    await house.erase()
    assert await house.tasks.heartbeat(QUEUE, [(task_id, attempt)]) == [(task_id, attempt)]
    assert not await house.tasks.advance(
        QUEUE, task_id, attempt, Status.GENERATING, progress=0.5, preview=Preview(MARK, 1, 2)
    )
    late = [f"results/{task_id}/1/image.png", f"results/{task_id}/1/preview-1.jpeg", checkpoint_key(task_id)]
    for key in late:
        await house.objects.put(key, MARK.encode(), "image/png")
    assert not await house.tasks.complete(QUEUE, task_id, attempt, Status.READY, result=new_result(prompt=MARK))
    assert await house.tasks.release(QUEUE, task_id, attempt, ReleaseCause.CRASH) is ReleaseOutcome.STALE
    assert sorted(await house.find_word(MARK)) == sorted(late)

    await make_due(house.tasks, "retention")
    sweep = asyncio.create_task(Maintenance(house.tasks, house.objects, [QUEUE]).sweep())
    async with asyncio.timeout(60):
        while await house.redis.zscore(f"{house.prefix}retention", task_id) is not None:
            await asyncio.sleep(0.01)
    while not sweep.done():
        sweep.cancel()
        await asyncio.wait([sweep], timeout=0.5)
    assert await house.find_word(MARK) == []


async def test_while_the_object_store_is_away_nothing_is_forgotten(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise OSError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete_prefixes", away)
        with pytest.raises(StorageUnreachable):
            await house.erase()
    assert house.leased[PROJECT.id].id in repr(await house.tasks.reads.list_tasks(PROJECT.id, limit=10))
    assert (await house.erase()).finished_at is not None
    assert await house.find_word(MARK) == []


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_any_call_it_is_done_by_the_next(
    redis: Redis, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    crash_injector, died = CrashInjector(monkeypatch), 0
    for survived in itertools.count():
        house = House(redis, f"{prefix}{survived}:", tmp_path / str(survived))
        await house.furnish()
        try:
            with crash_injector.crash_after(survived, after):
                await house.erase()
        except Killed:
            died += 1
        else:
            break
        await house.erase()
        assert await house.find_word(MARK) == []
        await assert_books_balance(house.credits)
    assert died > 25


async def test_the_servers_files_tell_nothing_either(tmp_path: Path, prefix: str) -> None:
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    redis = connection.connect(server.url)
    try:
        await redis.config_set("rdbcompression", "no")
        house = House(redis, prefix, tmp_path / "objects")
        await house.furnish()

        def files() -> bytes:
            return b"".join(file.read_bytes() for file in (tmp_path / "redis").rglob("*") if file.is_file())

        assert MARK.encode() in files()
        async for key in redis.scan_iter(f"{prefix}call:*"):  # as they do within seconds
            await redis.delete(key)
        await house.erase()
        with BlockingRedis.from_url(server.url, decode_responses=True) as client:
            until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])  # type: ignore[index]
        assert MARK.encode() not in files()
    finally:
        await redis.aclose()
        server.stop()
