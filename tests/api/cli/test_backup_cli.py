"""A drill: a service in the middle of its work is backed up, lost, and put back elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from obstore.exceptions import GenericError
from support.books import ORGANIZATION, assert_books_balance, priced_task
from support.command_line import GenServe, write_config
from support.deliveries import everything, hooked_task
from support.tasks import ALL, LANE, make_due

from deployments.contract.objects import ObjectStore
from serve_app.accounts.credits import Credits
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
    """Commands on a service of the same name on another server, with the same objects."""
    (tmp_path / "other").mkdir()
    config = write_config(tmp_path / "other", repository, elsewhere.url, prefix)
    config.write_text(config.read_text().replace(str(tmp_path / "other" / "data"), str(tmp_path / "data")))
    return GenServe(config, monkeypatch, capsys)


def on(url: str, prefix: str, step: Callable[[TaskStore], Awaitable[T]]) -> T:
    async def done() -> T:
        redis = connection.connect(url)
        try:
            return await step(TaskStore(redis, prefix))
        finally:
            await redis.aclose()

    return asyncio.run(done())


async def work(store: TaskStore) -> None:
    """Leaves tasks in every place: ended with a webhook due, leased and begun, waiting."""
    credits = Credits(store.redis, store.prefix)
    await credits.grant(ORGANIZATION, "first", 1000, by="test")
    await KeyStore(store.redis, store.prefix).create("test")
    for task in (hooked_task(id="ended", organization=ORGANIZATION, price=100), priced_task(50, id="begun")):
        await store.submit(task)
    for lease in await store.lease(LANE, 2, ALL):
        await store.advance(LANE, lease.id, lease.attempt, Status.GENERATING)
    await store.complete(LANE, "ended", 1, Status.READY, result={"key": "results/ended/1/picture.png"})
    await store.submit(priced_task(25, id="waiting", idempotency_key="once", body_hash="b"))


async def finish(store: TaskStore) -> None:
    """What dispatchers do that find it: leases run out, and all is done."""
    await make_due(store, f"leased:{LANE}")
    await store.reap(LANE)
    for lease in await store.lease(LANE, 10, ALL):
        assert await store.complete(LANE, lease.id, lease.attempt, Status.READY, result={})
    for task_id in ("ended", "begun", "waiting"):
        task = await store.get(task_id)
        assert task is not None
        assert task.status is Status.READY
    balance = await assert_books_balance(Credits(store.redis, store.prefix))
    assert (balance.held, balance.spent) == (0, 175)


def test_a_service_goes_on_from_its_backup(
    gen_serve: GenServe, other: GenServe, redis_url: str, elsewhere: EmbeddedRedis, prefix: str, tmp_path: Path
) -> None:
    on(redis_url, prefix, work)
    before = on(redis_url, prefix, everything)
    ran = gen_serve("backup", str(tmp_path / "backup"))
    assert (ran.code, "0 objects" in ran.out) == (0, True), ran.err
    ran = other("restore", str(tmp_path / "backup"))
    assert ran.code == 0, ran.err
    assert on(elsewhere.url, prefix, everything) == before
    on(elsewhere.url, prefix, finish)


def test_lives_of_keys_go_on(
    gen_serve: GenServe, other: GenServe, redis_url: str, elsewhere: EmbeddedRedis, prefix: str, tmp_path: Path
) -> None:
    on(redis_url, prefix, work)
    assert gen_serve("backup", str(tmp_path / "backup")).code == 0
    assert other("restore", str(tmp_path / "backup")).code == 0

    async def life_s(store: TaskStore) -> int:
        [key] = [key async for key in store.redis.scan_iter(f"{prefix}idempotency:*", count=1000)]
        return await store.redis.ttl(key)

    assert 0 < on(elsewhere.url, prefix, life_s) <= 24 * 3600


def test_objects_that_are_gone_are_told(gen_serve: GenServe, other: GenServe, tmp_path: Path) -> None:
    objects = ObjectStore((tmp_path / "data" / "objects").as_uri())
    for key in ("results/a/1/picture.png", "results/b/1/picture.png"):
        asyncio.run(objects.put(key, b"x", "image/png"))
    assert "2 objects" in gen_serve("backup", str(tmp_path / "backup")).out
    asyncio.run(objects.delete(["results/a/1/picture.png"]))
    assert "1 of 2 objects are gone since: results/a/1/picture.png" in other("restore", str(tmp_path / "backup")).out


def test_a_store_with_something_in_it_is_left_alone(
    gen_serve: GenServe, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    on(redis_url, prefix, work)
    assert gen_serve("backup", str(tmp_path / "backup")).code == 0
    ran = gen_serve("restore", str(tmp_path / "backup"))
    assert (ran.code, "not empty" in ran.err) == (1, True)


class Away:
    """An object store that is out of reach."""

    async def keys(self, prefix: str) -> list[str]:
        raise GenericError("Generic S3 error: out of reach\n\nDebug source: ...")


def test_with_the_object_store_away_both_say_so_and_can_be_repeated(
    gen_serve: GenServe, other: GenServe, redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(redis_url, prefix, work)
    for command in (gen_serve, other):
        word = "backup" if command is gen_serve else "restore"
        with monkeypatch.context() as away:
            away.setattr("serve_app.cli.backup.objects_to_read", lambda config: Away())
            ran = command(word, str(tmp_path / "backup"))
        assert (ran.code, ran.err) == (1, "error: the object store: Generic S3 error: out of reach\n")
        assert command(word, str(tmp_path / "backup")).code == 0


def test_a_restoration_that_broke_off_is_repeated(
    gen_serve: GenServe, other: GenServe, redis_url: str, elsewhere: EmbeddedRedis, prefix: str, tmp_path: Path
) -> None:
    on(redis_url, prefix, work)
    assert gen_serve("backup", str(tmp_path / "backup")).code == 0

    async def half_done(store: TaskStore) -> None:
        await store.redis.set(f"{prefix}restoring", "{}")
        await store.redis.set(f"{prefix}clock:{LANE}", "7")

    on(elsewhere.url, prefix, half_done)
    with pytest.raises(HalfRestored, match="repeat gen-serve restore"):
        on(elsewhere.url, prefix, lambda store: check_whole(store.redis, prefix))
    assert other("restore", str(tmp_path / "backup")).code == 0
    on(elsewhere.url, prefix, finish)


@pytest.mark.parametrize("fault", ["no folder", "not finished", "damaged", "another prefix"])
def test_what_is_no_whole_backup_is_refused(
    gen_serve: GenServe,
    repository: Path,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: str,
) -> None:
    folder, where = tmp_path / "backup", gen_serve
    if fault != "no folder":
        assert gen_serve("backup", str(folder)).code == 0
    if fault == "not finished":
        (folder / "backup.json").unlink()
    if fault == "damaged":
        (folder / "store.rdb").write_bytes(b"REDIS0011")
    if fault == "another prefix":
        where = GenServe(write_config(tmp_path, repository, redis_url, "else:"), monkeypatch, capsys)
    ran = where("restore", str(folder))
    assert ran.code == 2
    assert "backup" in ran.err


def test_a_folder_with_something_in_it_is_not_written_to(gen_serve: GenServe, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    ran = gen_serve("backup", str(tmp_path))
    assert (ran.code, "is not empty" in ran.err) == (2, True)
