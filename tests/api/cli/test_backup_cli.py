"""A service in the middle of its work is backed up, lost, and restored elsewhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from obstore.exceptions import GenericError
from support.cli_runner import GenServe, write_config
from support.deliveries import everything, hooked_task
from support.ledger import ORGANIZATION, assert_books_balance, priced_task
from support.payloads import RESULT, new_result
from support.tasks import ALL, QUEUE, make_due

from deployments.contract.objects import ObjectStore
from serve_app.accounts.credits import CreditStore
from serve_app.accounts.keys import KeyStore
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.storage.snapshot import HalfRestored, check_whole
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

T = TypeVar("T")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "elsewhere")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def other(
    elsewhere: EmbeddedRedis,
    prefix: str,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> GenServe:
    """Runs commands run_on a service of the same name run_on another server, with the same objects."""
    (tmp_path / "other").mkdir()
    config = write_config(tmp_path / "other", repository, elsewhere.url, prefix)
    config.write_text(config.read_text().replace(str(tmp_path / "other" / "data"), str(tmp_path / "data")))
    return GenServe(config, monkeypatch, capsys)


def run_on(url: str, prefix: str, step: Callable[[TaskStore], Awaitable[T]]) -> T:
    async def wrapper() -> T:
        redis = connection.connect(url)
        try:
            return await step(TaskStore(redis, prefix))
        finally:
            await redis.aclose()

    return asyncio.run(wrapper())


async def work(store: TaskStore) -> None:
    """Leaves one ended task with a webhook, one in work and one in the queue."""
    credits = CreditStore(store.redis, store.prefix)
    await credits.grant(ORGANIZATION, "first", 1000, by="test")
    await KeyStore(store.redis, store.prefix).create("test")
    for task in (hooked_task(id="ended", organization=ORGANIZATION, price=100), priced_task(50, id="begun")):
        await store.submit(task)
    for lease in await store.lease(QUEUE, 2, ALL):
        await store.advance(QUEUE, lease.id, lease.attempt, Status.GENERATING)
    await store.complete(QUEUE, "ended", 1, Status.READY, result=new_result("results/ended/1/image.png"))
    await store.submit(priced_task(25, id="waiting", idempotency_key="once", body_hash="b"))


async def finish(store: TaskStore) -> None:
    """Works as dispatchers do after the restoration, until all tasks are done."""
    await make_due(store, f"leased:{QUEUE}")
    await store.reap(QUEUE)
    for lease in await store.lease(QUEUE, 10, ALL):
        assert await store.complete(QUEUE, lease.id, lease.attempt, Status.READY, result=RESULT)
    for task_id in ("ended", "begun", "waiting"):
        task = await store.reads.get(task_id)
        assert task is not None
        assert task.status is Status.READY
    balance = await assert_books_balance(CreditStore(store.redis, store.prefix))
    assert (balance.held, balance.spent) == (0, 175)


@pytest.fixture
def copy(gen_serve: GenServe, redis_url: str, prefix: str, tmp_path: Path) -> str:
    """Returns the folder of a backup, with two objects."""
    objects = ObjectStore((tmp_path / "data" / "objects").as_uri())
    for key in ("results/a/1/image.png", "results/b/1/image.png"):
        asyncio.run(objects.put(key, b"x", "image/png"))
    run_on(redis_url, prefix, work)
    result = gen_serve("backup", str(tmp_path / "backup"))
    assert (result.code, "2 objects" in result.out) == (0, True), result.err
    return str(tmp_path / "backup")


def test_restored_service_finishes_its_tasks(
    other: GenServe, copy: str, redis_url: str, elsewhere: EmbeddedRedis, prefix: str, tmp_path: Path
) -> None:
    objects = ObjectStore((tmp_path / "data" / "objects").as_uri())
    asyncio.run(objects.delete(["results/a/1/image.png"]))
    result = other("restore", copy)
    assert result.code == 0, result.err
    assert "1 of 2 objects no longer exist: results/a/1/image.png" in result.out
    assert run_on(elsewhere.url, prefix, everything) == run_on(redis_url, prefix, everything)

    async def life_s(store: TaskStore) -> int:
        [key] = [key async for key in store.redis.scan_iter(f"{prefix}idempotency:*", count=1000)]
        return await store.redis.ttl(key)

    assert 0 < run_on(elsewhere.url, prefix, life_s) <= 24 * 3600
    run_on(elsewhere.url, prefix, finish)


def test_store_or_folder_that_is_not_empty_is_refused(gen_serve: GenServe, copy: str) -> None:
    result = gen_serve("restore", copy)
    assert (result.code, "not empty" in result.err) == (1, True)
    result = gen_serve("backup", copy)
    assert (result.code, "is not empty" in result.err) == (2, True)


class UnreachableObjects:
    """Fails as an object store that is out of reach."""

    async def keys(self, prefix: str) -> list[str]:
        raise GenericError("Generic S3 error: out of reach\n\nDebug source: ...")


def test_unreachable_object_store_fails_the_backup_and_the_restoration(
    gen_serve: GenServe, other: GenServe, copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.cli.backup.readable_object_store", lambda config: UnreachableObjects())
    for result in (gen_serve("backup", f"{copy}-2"), other("restore", copy)):
        assert (result.code, result.err) == (1, "error: the object store: Generic S3 error: out of reach\n")
    monkeypatch.undo()
    assert gen_serve("backup", f"{copy}-2").code == other("restore", copy).code == 0, "and can be repeated"


def test_interrupted_restoration_is_repeated(other: GenServe, copy: str, elsewhere: EmbeddedRedis, prefix: str) -> None:
    async def half_done(store: TaskStore) -> None:
        await store.redis.set(f"{prefix}restoring", "{}")
        await store.redis.set(f"{prefix}clock:{QUEUE}", "7")

    run_on(elsewhere.url, prefix, half_done)
    with pytest.raises(HalfRestored, match="repeat gen-serve restore"):
        run_on(elsewhere.url, prefix, lambda store: check_whole(store.redis, prefix))
    assert other("restore", copy).code == 0
    run_on(elsewhere.url, prefix, finish)


def test_incomplete_backup_is_refused(other: GenServe, copy: str) -> None:
    folder = Path(copy)

    def refused(folder: Path) -> bool:
        result = other("restore", str(folder))
        return (result.code, "backup" in result.err) == (2, True)

    assert refused(folder / "missing")
    dump = (folder / "store.rdb").read_bytes()
    (folder / "store.rdb").write_bytes(b"REDIS0011")
    assert refused(folder), "a damaged dump"
    (folder / "store.rdb").write_bytes(dump)
    assert other.config
    config = other.config.read_text()
    other.config.write_text(re.sub(r'"prefix": "[^"]*"', '"prefix": "else:"', config))
    assert refused(folder), "another prefix"
    other.config.write_text(config)
    (folder / "backup.json").unlink()
    assert refused(folder), "an unfinished backup"
