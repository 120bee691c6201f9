"""Erasure deletes a project's data from Redis, its files and the object store, through crashes, too."""

from __future__ import annotations

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
"""A word in all data of the erased project, and in no other."""
PROJECT = Project("shop", ORGANIZATION)
NEIGHBOUR = "neighbour"
PRICE = 100


@dataclass
class ErasureScene:
    """A service with two projects of one organization, which have data of every kind."""

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
        """Returns the keys of Redis and of objects that have the word in their name or content.

        Leaves out replies to calls of dispatchers and senders, which expire within seconds.
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
async def scene(redis: Redis, prefix: str, tmp_path: Path) -> ErasureScene:
    scene = ErasureScene(redis, prefix, tmp_path / "objects")
    await scene.furnish()
    return scene


async def test_erasure_deletes_all_data_of_this_project_only(scene: ErasureScene) -> None:
    whole = await scene.find_word(MARK)
    assert len(whole) > 15
    before = await scene.find_word("beside")
    erasure = await scene.erase()
    assert await scene.find_word(MARK) == await scene.find_word(MARK.lower()) == []
    assert await scene.find_word("beside") == before
    assert (erasure.project, erasure.by) == (PROJECT.id, "test")
    assert erasure.finished_at is not None
    balance = await assert_books_balance(scene.credits)
    assert (balance.held, balance.spent) == (2 * PRICE, 2 * PRICE), "two tasks of the neighbour, and an image of each"


async def test_erasure_keeps_the_audit_log_without_names(scene: ErasureScene) -> None:
    audit = AuditLog(scene.redis, scene.prefix)
    before, _ = await audit.read(ORGANIZATION, 1000)
    await scene.erase()
    after, _ = await audit.read(ORGANIZATION, 1000)
    assert [each.action for each in after[:2]] == ["erased project", "erase project"]
    for old, new in zip(before, after[2:], strict=True):
        assert (old.id, old.actor, old.action, old.subject) == (new.id, new.actor, new.action, new.subject)
    names = [each.details.get("name") for each in after if each.action == "create key"]
    keys = await KeyStore(scene.redis, scene.prefix).list(PROJECT.id)
    assert {key.name for key in keys} == {key.id for key in keys}
    assert sorted(names, key=str) == sorted([*(key.id for key in keys), *["key of beside"] * 3])


async def test_interrupted_erasure_keeps_the_project_closed_and_resumes(scene: ErasureScene) -> None:
    finetune = await scene.finetunes.begin(MARK, PROJECT.id, "gen-test", QUEUE)
    first = await scene.erase(within_s=0)
    assert first.finished_at is None
    with pytest.raises(ProjectClosed):
        await scene.tasks.submit(new_task(project=PROJECT.id, organization=ORGANIZATION))
    with pytest.raises(registry.FinetunesClosed):
        await scene.finetunes.begin("x", PROJECT.id, "gen-test", QUEUE)
    assert (await scene.tasks.submit(new_task(project=NEIGHBOUR, organization=ORGANIZATION))).created
    assert await ProjectDeletion(scene.redis, scene.prefix, scene.objects).is_running(PROJECT.id)
    second = await scene.erase()
    assert second.started_at == first.started_at
    assert await scene.erase() == second
    with pytest.raises(FinetuneDeleted):
        await scene.finetunes.finish(finetune, rank=1, layers=1, size=1)
    assert await scene.find_word(MARK) == []


async def test_reopened_project_can_be_erased_again(scene: ErasureScene) -> None:
    await scene.erase()
    await scene.projects.change(PROJECT, {"closed": None}, "test")
    task = new_task(project=PROJECT.id, organization=ORGANIZATION)
    assert (await scene.tasks.submit(task)).created
    assert (await scene.erase()).finished_at is not None
    assert await scene.tasks.reads.get(task.id) is None


async def test_late_results_of_an_erased_task_are_swept(scene: ErasureScene) -> None:
    running = scene.leased[PROJECT.id]
    task_id, attempt = running.id, running.attempt
    await scene.erase()
    assert await scene.tasks.heartbeat(QUEUE, [(task_id, attempt)]) == [(task_id, attempt)]
    preview = Preview(MARK, 1, 2)
    assert not await scene.tasks.advance(QUEUE, task_id, attempt, Status.GENERATING, progress=0.5, preview=preview)
    late = [f"results/{task_id}/1/image.png", f"results/{task_id}/1/preview-1.jpeg", checkpoint_key(task_id)]
    for key in late:
        await scene.objects.put(key, MARK.encode(), "image/png")
    assert not await scene.tasks.complete(QUEUE, task_id, attempt, Status.READY, result=new_result(prompt=MARK))
    assert await scene.tasks.release(QUEUE, task_id, attempt, ReleaseCause.CRASH) is ReleaseOutcome.STALE
    assert sorted(await scene.find_word(MARK)) == sorted(late)

    await make_due(scene.tasks, "retention")
    await Maintenance(scene.tasks, scene.objects, [QUEUE]).drop_tasks()
    assert await scene.find_word(MARK) == []


async def test_erasure_forgets_nothing_while_objects_are_unreachable(
    scene: ErasureScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise OSError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete_prefixes", away)
        with pytest.raises(StorageUnreachable):
            await scene.erase()
    assert scene.leased[PROJECT.id].id in repr(await scene.tasks.reads.list_tasks(PROJECT.id, limit=10))
    assert (await scene.erase()).finished_at is not None
    assert await scene.find_word(MARK) == []


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_erasure_killed_at_any_call_is_finished_by_the_next(
    redis: Redis, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    crash_injector, died = CrashInjector(monkeypatch), 0
    for survived in itertools.count():
        scene = ErasureScene(redis, f"{prefix}{survived}:", tmp_path / str(survived))
        await scene.furnish()
        try:
            with crash_injector.crash_after(survived, after):
                await scene.erase()
        except Killed:
            died += 1
        else:
            break
        await scene.erase()
        assert await scene.find_word(MARK) == []
        await assert_books_balance(scene.credits)
    assert died > 25


async def test_erasure_rewrites_the_files_of_redis(doomed_redis: EmbeddedRedis, prefix: str, tmp_path: Path) -> None:
    def files() -> bytes:
        return b"".join(file.read_bytes() for file in (tmp_path / "redis").rglob("*") if file.is_file())

    redis = connection.connect(doomed_redis.url)
    await redis.config_set("rdbcompression", "no")
    scene = ErasureScene(redis, prefix, tmp_path / "objects")
    await scene.furnish()
    assert MARK.encode() in files()
    async for key in redis.scan_iter(f"{prefix}call:*"):  # they expire within seconds
        await redis.delete(key)
    await scene.erase()
    await redis.aclose()
    with BlockingRedis.from_url(doomed_redis.url, decode_responses=True) as client:
        until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])  # type: ignore[index]
    assert MARK.encode() not in files()
