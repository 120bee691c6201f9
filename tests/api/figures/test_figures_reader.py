"""Metrics that a scrape reads from the task store, and counters that processes add there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import generate_latest
from redis.asyncio import Redis
from redis.exceptions import RedisError
from support.deliveries import hooked_task
from support.tasks import QUEUE, lease_one, make_due, new_task

from deployments.contract.counts import ReplicaCounts
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, CreditStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.metrics.reader import MetricsReader
from serve_app.storage import connection
from serve_app.storage.tally import TIMES, CounterBuffer, CounterName, read_counters
from serve_app.tasks.limits import Limits
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

HOUR_MS = 3_600_000


async def no_replicas() -> Mapping[str, ReplicaCounts]:
    return {}


def make_reader(store: TaskStore, **changes: Any) -> MetricsReader:
    options: dict[str, Any] = {"projects": 10, "replicas": no_replicas}
    return MetricsReader(store.redis, store, [QUEUE], **(options | changes))


async def read_metric(reader: MetricsReader, name: str) -> dict[tuple[str, ...], float]:
    """Returns the samples of a metric by the values of their labels."""
    samples = [sample for family in (await reader.read()).collect() for sample in family.samples]
    return {tuple(sample.labels.values()): sample.value for sample in samples if sample.name == name}


async def age(store: TaskStore, task_id: str, ms: int) -> None:
    """Moves the submission of a task into the past."""
    await store.redis.hincrby(f"{store.prefix}task:{task_id}", "created", -ms)  # type: ignore[misc]
    await store.redis.zincrby(f"{store.prefix}deadlines:{QUEUE}", -ms, task_id)


async def complete_task(store: TaskStore, project: str = "p", device_s: float = 0.0, **changes: Any) -> None:
    task = hooked_task(project=project, **changes)
    await store.submit(task)
    lease = await lease_one(store)
    await store.advance(QUEUE, lease.id, lease.attempt, Status.GENERATING)
    for _ in range(2):  # an attempt counts once, however often it publishes
        await store.complete(QUEUE, lease.id, lease.attempt, Status.READY, device_s=device_s)


async def test_oldest_wait_is_that_of_a_waiting_task(store: TaskStore) -> None:
    reader = make_reader(store)
    assert await read_metric(reader, "gen_tasks_oldest_wait_seconds") == {(QUEUE,): 0}
    ids = [task.id for task in [new_task() for _ in range(3)] if await store.submit(task)]
    leased = await lease_one(store)
    await store.advance(QUEUE, leased.id, leased.attempt, Status.GENERATING)  # its deadline is nearer than the others'
    await age(store, leased.id, 3 * HOUR_MS)
    assert (await read_metric(reader, "gen_tasks_oldest_wait_seconds"))[QUEUE,] < 60, "a task in work does not wait"
    await age(store, next(each for each in ids if each != leased.id), HOUR_MS)
    assert 3600 <= (await read_metric(reader, "gen_tasks_oldest_wait_seconds"))[QUEUE,] < 3660
    await store.release(QUEUE, leased.id, leased.attempt)
    assert 3 * 3600 <= (await read_metric(reader, "gen_tasks_oldest_wait_seconds"))[QUEUE,] < 3 * 3600 + 60


async def test_lags_of_reaper_and_sweeper_are_measured(store: TaskStore) -> None:
    reader = make_reader(store)

    async def lags() -> list[bool]:
        """Checks that leases, deadlines and the sweep lag since 1970 or not at all. Returns which of them lag."""
        reaper = await read_metric(reader, "gen_reaper_lag_seconds")
        sweeper = await read_metric(reader, "gen_sweeper_lag_seconds")
        ages = [reaper[QUEUE, "leases"], reaper[QUEUE, "deadlines"], sweeper[()]]
        assert all(lag == 0 or lag > 1e9 for lag in ages)
        return [lag > 0 for lag in ages]

    assert await lags() == [False, False, False]
    await store.submit(new_task())
    await lease_one(store)
    await make_due(store, f"leased:{QUEUE}")
    assert await lags() == [True, False, False]
    await make_due(store, f"deadlines:{QUEUE}")
    assert await lags() == [True, True, False]
    await store.end_overdue(QUEUE)
    assert await lags() == [False, False, False]
    await make_due(store, "retention")
    assert await lags() == [False, False, True]
    await store.sweep()
    assert await lags() == [False, False, False]


async def test_costs_are_counted_by_endpoint_and_by_largest_projects(store: TaskStore) -> None:
    await CreditStore(store.redis, store.prefix).grant(DEFAULT_ORGANIZATION, "g", 1_000_000, "test")
    for project, endpoint, price, device_s in (
        ("a", "gen-pro", 40_000, 1.5),
        ("a", "gen-2-pro", 10_000, 0.5),
        ("b", "gen-pro", 30_000, 4.0),
        ("c", "gen-pro", 0, 0.25),
    ):
        await complete_task(store, project, device_s, endpoint=endpoint, price=price, organization=DEFAULT_ORGANIZATION)
    reader = make_reader(store, projects=2)
    assert await read_metric(reader, "gen_device_seconds_total") == {
        (QUEUE, "gen-2-pro"): 0.5,
        (QUEUE, "gen-pro"): 5.75,
    }
    assert await read_metric(reader, "gen_project_device_seconds_total") == {("b",): 4.0, ("a",): 2.0}
    assert await read_metric(reader, "gen_results_total") == {("gen-2-pro",): 1, ("gen-pro",): 3}
    assert await read_metric(reader, "gen_results_credits_total") == {("gen-2-pro",): 10, ("gen-pro",): 70}
    assert await read_metric(reader, "gen_project_credits_total") == {("a",): 50, ("b",): 30}
    assert await read_metric(make_reader(store, projects=0), "gen_project_credits_total") == {}
    await OrganizationStore(store.redis, store.prefix).create("other", "other", "test")
    await CreditStore(store.redis, store.prefix).grant("other", "g", 70_000, "test")
    await store.submit(new_task(price=1000, organization="other"))
    sums = {name: (await read_metric(reader, f"gen_credits_{name}"))[()] for name in ("balance", "held", "granted")}
    assert sums == {"balance": 920 + 69, "held": 1, "granted": 1070}, "of all organizations"


async def test_replicas_are_counted_by_state_unless_unknown(store: TaskStore) -> None:
    async def replica_states() -> Mapping[str, ReplicaCounts]:
        return {QUEUE: ReplicaCounts({"RUNNING": 2, "STARTING": 1}, target=3)}

    async def out_of_reach() -> Mapping[str, ReplicaCounts]:
        raise RuntimeError("no controller")

    replicas = {(QUEUE, "RUNNING"): 2, (QUEUE, "STARTING"): 1}
    assert await read_metric(make_reader(store, replicas=replica_states), "gen_replicas") == replicas
    unreachable_reader = make_reader(store, replicas=out_of_reach)
    assert await read_metric(unreachable_reader, "gen_replicas") == {}
    assert await read_metric(unreachable_reader, "gen_store_memory_bytes") != {}


async def test_cost_of_a_scrape_does_not_grow_with_tasks(redis: Redis, prefix: str) -> None:
    store = TaskStore(redis, prefix, Limits(max_active=10_000))

    reader = make_reader(store)
    await reader.read()  # scripts are known from here on

    async def measure() -> tuple[int, int, int]:
        """Returns the commands, the bytes of Redis' answers and the lines of a scrape."""
        before = await redis.info("stats")
        text = generate_latest(await reader.read())
        after = await redis.info("stats")
        commands = after["total_commands_processed"] - before["total_commands_processed"]
        return commands, after["total_net_output_bytes"] - before["total_net_output_bytes"], len(text.splitlines())

    async def cost() -> tuple[int, int, int]:
        """Returns the lowest of several: a connection that is opened meanwhile adds commands of its own."""
        return min([await measure() for _ in range(3)])

    for _ in range(20):
        await complete_task(store, device_s=0.5)
        await store.submit(new_task())
    few = await cost()
    for _ in range(100):
        await complete_task(store, device_s=0.5)
    many = await cost()
    assert many[0] == few[0]
    assert many[2] == few[2]
    assert many[1] < 1.5 * few[1], "numbers have more digits, and this minute has more buckets"


async def test_counts_of_several_processes_are_added_once(redis: Redis, prefix: str) -> None:
    for seconds in (0.003, 0.2, 400.0):
        tally = CounterBuffer()
        tally.observe(CounterName.MODERATION, "request", seconds)
        tally.count(CounterName.REFUSALS, "queue_full gen-pro")
        await tally.flush(redis, prefix)
        await tally.flush(redis, prefix)
    histogram = TIMES.read("request", await read_counters(redis, prefix, CounterName.MODERATION))
    counted = dict(histogram.buckets)
    assert (counted[0.005], counted[0.1], counted[0.25], counted[180.0], histogram.count) == (1, 1, 2, 2, 3)
    assert histogram.sum == pytest.approx(400.203)
    assert await read_counters(redis, prefix, CounterName.REFUSALS) == {"queue_full gen-pro": "3"}


async def test_counts_are_kept_until_they_are_stored(redis: Redis, prefix: str) -> None:
    tally, unreachable = CounterBuffer(), connection.connect("redis://127.0.0.1:1", answer_s=0.2)
    async with asyncio.timeout(60), tally.flush_periodically(unreachable, prefix):
        tally.count(CounterName.REFUSALS, "a b")
        with pytest.raises(RedisError):
            await tally.flush(unreachable, prefix)
    async with tally.flush_periodically(redis, prefix):
        tally.count(CounterName.REFUSALS, "a b")
    assert await read_counters(redis, prefix, CounterName.REFUSALS) == {"a b": "2"}
    await unreachable.aclose()
