"""A server in cluster mode accepts every script and transaction if the prefix has a hash tag."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest
from redis.asyncio import Redis
from support.deliveries import claim_one, hooked_task, make_outbox
from support.ledger import ORGANIZATION, PROJECT, assert_books_balance
from support.payloads import RESULT
from support.redis_process import RedisProcess, until
from support.tasks import QUEUE, lease_one, make_due

from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.credits import CreditStore
from serve_app.accounts.keys import KeyStore
from serve_app.accounts.licences import LicenceStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.launcher.embedded_redis import free_port
from serve_app.storage import connection
from serve_app.tasks.scripts import CancelOutcome, ReleaseCause, ReleaseOutcome
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import AttemptRecord, DeliveryOutcome

PREFIX = "{gen}:"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    settings = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    server = RedisProcess(tmp_path_factory.mktemp("cluster"), free_port(), settings)
    server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    until(lambda: "cluster_state:ok" in server.ask("CLUSTER", "INFO"))
    yield server
    server.kill()


@pytest.fixture
async def redis(server: RedisProcess) -> AsyncIterator[Redis]:
    client = connection.connect(f"redis://127.0.0.1:{server.port}", retries=0)
    yield client
    await client.flushall()
    await client.aclose()


async def test_every_step_of_a_task_runs(redis: Redis) -> None:
    store, credits = TaskStore(redis, PREFIX), CreditStore(redis, PREFIX)
    await credits.grant(ORGANIZATION, "first", 1000, by="test")
    await ProjectStore(redis, PREFIX).change(PROJECT, {"limit_day": 500}, "test")
    task = hooked_task(organization=ORGANIZATION, price=100, idempotency_key="once", body_hash="x")
    assert (await store.submit(task)).created
    assert await store.reads.non_empty_queues(QUEUE) == [QUEUE]
    lease = await lease_one(store)
    assert await store.heartbeat(QUEUE, [(lease.id, lease.attempt)]) == []
    assert await store.advance(QUEUE, task.id, lease.attempt, Status.GENERATING, progress=0.5)
    assert await store.release(QUEUE, task.id, lease.attempt, ReleaseCause.CRASH) is ReleaseOutcome.REQUEUED
    lease = await lease_one(store)
    await make_due(store, f"leased:{QUEUE}")
    assert await store.reap(QUEUE) == 1
    lease = await lease_one(store)
    assert await store.complete(QUEUE, task.id, lease.attempt, Status.READY, result=RESULT)
    outbox = make_outbox(store)
    claim = await claim_one(outbox)
    await outbox.prolong([claim])
    assert await outbox.record(claim, AttemptRecord(1.0, 204), DeliveryOutcome.DELIVERED)
    assert await outbox.replay(task.id)
    assert await outbox.record(await claim_one(outbox), AttemptRecord(1.0, 204), DeliveryOutcome.DELIVERED)
    await make_due(store, "retention")
    assert await store.sweep() == [task.id]
    assert await store.sweep([task.id]) == []
    assert await store.end_overdue(QUEUE) == 0
    assert await store.cancel(task.id, "p") is CancelOutcome.UNKNOWN
    assert (await assert_books_balance(credits)).spent == 100


async def test_accounts_licences_and_finetunes_are_stored(redis: Redis) -> None:
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
