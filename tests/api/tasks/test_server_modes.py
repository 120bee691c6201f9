"""Redis servers in cluster mode and without free memory: every step works that must.

In cluster mode every script and transaction is accepted if the prefix has a hash tag.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from datetime import UTC, datetime
from typing import cast

import pytest
from redis.exceptions import OutOfMemoryError
from support.deliveries import OK, claim_one, hooked_task, make_outbox
from support.ledger import ORGANIZATION, PROJECT, assert_books_balance
from support.payloads import RESULT, new_result
from support.redis_process import RedisProcess, until
from support.tasks import ALL, QUEUE, get_task, lease_one, new_task

from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.credits import CreditStore
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.licences import LicenceStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.inputs.links import get_link_secret
from serve_app.launcher.embedded_redis import EmbeddedRedis, free_port
from serve_app.storage import connection
from serve_app.tasks.limits import Limits
from serve_app.tasks.rejections import StoreFull
from serve_app.tasks.scripts import CancelOutcome, ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import DeliveryOutcome

PREFIX = "{gen}:"


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    server = RedisProcess(tmp_path_factory.mktemp("cluster"), free_port(), settings)
    server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    until(lambda: "cluster_state:ok" in server.ask("CLUSTER", "INFO"))
    yield f"redis://127.0.0.1:{server.port}"
    server.kill()


@pytest.fixture(scope="module")
def small_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
async def store(request: pytest.FixtureRequest) -> AsyncIterator[TaskStore]:
    redis = connection.connect(request.getfixturevalue(request.param), retries=0)
    yield TaskStore(redis, PREFIX, Limits(max_memory=0.8))
    await redis.config_set("maxmemory", 0)
    await redis.flushall()
    await redis.aclose()


on_cluster = pytest.mark.parametrize("store", ["cluster_url"], indirect=True)
on_small_server = pytest.mark.parametrize("store", ["small_url"], indirect=True)


async def use(store: TaskStore, used_fraction: float) -> None:
    """Sets the server's memory limit so that this fraction of it is used."""
    used = (await store.reads.memory()).used
    await store.redis.config_set("maxmemory", int(used / used_fraction))
    await store.redis.delete(f"{store.prefix}memory")  # the cached reading


async def fill(store: TaskStore) -> None:
    await use(store, 1.5)
    with pytest.raises(OutOfMemoryError):
        await store.redis.set("one", "more")


async def make_due(store: TaskStore, index: str, task_id: str) -> None:
    """Makes an entry of a time index due, on a full server."""
    script = "#!lua flags=allow-oom\nreturn redis.call('ZADD', KEYS[1], 'XX', 1, ARGV[1])"
    await cast(Awaitable[int], store.redis.eval(script, 1, f"{store.prefix}{index}", task_id))


async def submit_task(store: TaskStore) -> str:
    task = new_task()
    await store.submit(task)
    return task.id


@pytest.mark.parametrize(
    ("store", "is_full"), [("cluster_url", False), ("small_url", True)], indirect=["store"], ids=["cluster", "full"]
)
async def test_leased_tasks_end_and_webhooks_are_delivered(store: TaskStore, is_full: bool) -> None:
    credits = CreditStore(store.redis, PREFIX)
    await credits.grant(ORGANIZATION, "first", 1000, by="test")
    await ProjectStore(store.redis, PREFIX).change(PROJECT, {"limit_day": 1000}, "test")
    tasks = [hooked_task(organization=ORGANIZATION, price=100, idempotency_key=key, body_hash="x") for key in "abcde"]
    for task in tasks:
        assert (await store.submit(task)).created
    assert await store.reads.non_empty_queues(QUEUE) == [QUEUE]
    assert len(await store.lease(QUEUE, 5, ALL)) == 5
    if is_full:
        await fill(store)
    ready, released, expired, cancelled, overdue = ids = [task.id for task in tasks]
    for task_id in ids:
        assert await store.heartbeat(QUEUE, [(task_id, 1)]) == []
        assert await store.advance(QUEUE, task_id, 1, Status.REASONING, progress=0.5)
    assert await store.complete(QUEUE, ready, 1, Status.READY, result=new_result("k" * 1000))
    assert await store.release(QUEUE, released, 1, ReleaseCause.CRASH) is ReleaseOutcome.REQUEUED
    assert await store.cancel(cancelled, "p") is CancelOutcome.CANCELLED
    await make_due(store, f"deadlines:{QUEUE}", overdue)
    assert await store.end_overdue(QUEUE) == 1
    await make_due(store, f"leased:{QUEUE}", expired)
    assert await store.reap(QUEUE) == 1
    statuses = [(await get_task(store, task_id)).status for task_id in ids]
    assert statuses == [Status.READY, Status.PENDING, Status.PENDING, Status.ERROR, Status.ERROR]
    outbox = make_outbox(store)
    claims = await outbox.claim(10)
    assert {claim.id for claim in claims} == {ready, cancelled, overdue}
    await outbox.prolong(claims)
    for claim in claims:
        assert await outbox.record(claim, OK, DeliveryOutcome.DELIVERED)
    if not is_full:  # a replay needs memory
        assert await outbox.replay(ready)
        assert await outbox.record(await claim_one(outbox), OK, DeliveryOutcome.DELIVERED)
    await make_due(store, "retention", ready)
    assert await store.sweep() == [ready]
    assert await store.sweep([ready]) == []
    assert await store.reads.get(ready) is None
    balance = await assert_books_balance(credits)
    assert (balance.spent, balance.held) == (100, 200)


@on_cluster
async def test_cluster_stores_accounts_licences_and_finetunes(store: TaskStore) -> None:
    redis = store.redis
    assert await OrganizationStore(redis, PREFIX).create("acme", "Acme", "test")
    assert await ProjectStore(redis, PREFIX).create("site", "acme", "test")
    _, secret = await KeyStore(redis, PREFIX).create("test", "site", organization="acme")
    caller = await Callers(redis, PREFIX).authenticate(secret)
    assert caller is not None
    assert caller.organization == "acme"
    entries, _ = await AuditLog(redis, PREFIX).read("acme", limit=10)
    assert entries
    licences = LicenceStore(redis, PREFIX)
    await licences.license("acme", "model", "test")
    await licences.report("acme", "model", 3)
    today = datetime.now(UTC).date()
    assert [row.count for row in await licences.list_generations("acme", today, today)] == [3]
    registry = FinetuneRegistry(redis, PREFIX)
    finetune = await registry.begin("ink", "site", "gen-test", QUEUE)
    assert (await registry.finish(finetune, rank=4, layers=1, size=1)).id == finetune.id


@on_small_server
async def test_watermark_refuses_submissions_and_later_leases(store: TaskStore) -> None:
    task_id = await submit_task(store)
    await use(store, 0.85)
    with pytest.raises(StoreFull):
        await submit_task(store)
    lease = await lease_one(store)
    assert await store.complete(QUEUE, task_id, lease.attempt, Status.READY, result=RESULT)
    await use(store, 0.75)
    waiting = await submit_task(store)
    await use(store, 0.95)
    assert await store.lease(QUEUE, 1, ALL) == []
    await use(store, 0.5)
    assert (await lease_one(store)).id == waiting


@on_small_server
async def test_service_restarts_on_a_full_store(store: TaskStore) -> None:
    redis, credits = store.redis, CreditStore(store.redis, PREFIX)

    async def start() -> bytes:
        secret = await get_link_secret(redis, PREFIX)
        await credits.grant("default", "first", 1000, by="settings", note="first")
        return secret

    secret = await start()
    await fill(store)
    assert await start() == secret
    await store.heartbeat_dispatcher()
    assert await store.reads.has_dispatcher()
    with pytest.raises(StoreFull):
        await submit_task(store)
