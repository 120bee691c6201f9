"""Estimates of when a task will be done, and queue positions."""

from __future__ import annotations

import pytest
from support.http_service import StartService
from support.images import image_file
from support.payloads import RESULT
from support.tasks import ALL, QUEUE, get_task, new_task, with_limits
from support.worker import QUEUE as KLEIN

from deployments.contract.counts import ReplicaCounts
from serve_app.api.model_status import EtaReader, ModelStatusReader
from serve_app.tasks.estimates import Pace, QueueForecast, QueuePosition, eta_details, find_position, read_forecast
from serve_app.tasks.reads import StepTiming
from serve_app.tasks.scripts import ReleaseCause
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task
from serve_app.tasks.windows import Window, WindowReader

NOW = 1000.0
PACE = Pace(mean=2.0, fast=1.0, slow=4.0)
FORECAST = QueueForecast(PACE, running=2, mean_work=10.0, load_s=30.0, step_s=0.8)
LEASED = QueuePosition(leased=True)


def generating(elapsed: float, progress: float, attempt: int = 1) -> Task:
    """Returns a running task of five units of work, which take ten seconds."""
    status, started = Status.GENERATING, NOW - elapsed
    return Task("t", "p", QUEUE, "gen-test", status, attempt, 0, 0.0, started, progress=progress, work=5.0)


def waiting() -> Task:
    return Task("t", "p", QUEUE, "gen-test", Status.PENDING, 0, 0, 0.0, work=5.0)


@pytest.mark.parametrize(
    ("position", "running", "eta", "eta_range"),
    [
        (1, 0, 10.0, [5.0, 20.0]),
        (1, 2, 15.0, [7.5, 30.0]),
        (2, 2, 25.0, [12.5, 50.0]),
        (5, 2, 55.0, [38.75, 87.5]),
    ],
)
def test_tasks_ahead_proceed_as_many_at_a_time_as_run(
    position: int, running: int, eta: float, eta_range: list[float]
) -> None:
    forecast = QueueForecast(PACE, running, mean_work=10.0)
    details = eta_details(waiting(), QueuePosition(position), forecast, NOW)
    assert details == {"eta": eta, "eta_range": pytest.approx(eta_range, abs=0.1), "queue_position": position}


@pytest.mark.parametrize(
    ("task", "eta", "eta_range"),
    [
        (generating(0.0, 0.0), 10.0, [5.0, 20.0]),
        (generating(4.0, 0.05), 6.0, [1.0, 16.0]),
        (generating(4.0, 0.5), 4.5, [1.5, 10.0]),
        (generating(12.0, 0.0), 0.0, [0.0, 8.0]),
        (generating(40.0, 0.0), 0.0, [0.0, 10.0]),
        (generating(40.0, 0.8), 7.5, [3.0, 16.0]),
        (generating(40.0, 1.0), 0.0, [0.0, 10.0]),
        (generating(40.0, 0.8, attempt=2), 10.0, [5.0, 20.0]),
    ],
    ids=["began", "early", "half", "overrun", "long overrun", "slow", "at the end", "second attempt"],
)
def test_eta_of_a_running_task(task: Task, eta: float, eta_range: list[float]) -> None:
    # Progress may be a second old: a step of 0.8 s, and 0.2 s between notes of it.
    assert eta_details(task, LEASED, FORECAST, NOW) == {"eta": eta, "eta_range": pytest.approx(eta_range)}


def test_starting_model_adds_its_time_to_load() -> None:
    assert eta_details(waiting(), LEASED, FORECAST, NOW, starting=True) == {
        "eta": 40.0,
        "eta_range": [35.0, 50.0],
        "message": "starting model, about 30 s",
    }
    unknown = QueueForecast(PACE)
    assert eta_details(waiting(), LEASED, unknown, NOW, starting=True, fault="gone") == {"message": "gone"}
    details = eta_details(waiting(), QueuePosition(1), unknown, NOW, starting=True)
    assert details == {"queue_position": 1, "message": "starting model"}


def test_queue_without_results_tells_only_a_position() -> None:
    assert eta_details(waiting(), QueuePosition(3), QueueForecast(), NOW) == {"queue_position": 3}
    assert eta_details(waiting(), LEASED, QueueForecast(), NOW) is None
    assert Pace.from_window(Window()) is None


async def test_forecast_and_positions_are_read_from_the_store(store: TaskStore) -> None:
    tasks = [new_task(work=work) for work in (4.0, 4.0, 3.0, 5.0)]
    for task in tasks:
        await store.submit(task)
    ready, running = await store.lease(QUEUE, 2, ALL)
    await store.advance(QUEUE, ready.id, ready.attempt, Status.GENERATING)
    await store.redis.hincrby(f"{store.prefix}task:{ready.id}", "started", -8000)  # type: ignore[misc]
    await store.complete(QUEUE, ready.id, ready.attempt, Status.READY, result=RESULT)
    await store.report(QUEUE, {"load_s": 50.0, "loads": 2}, {}, last_step=StepTiming(1, 0.1))

    forecast = await read_forecast(store, WindowReader(store), QUEUE)
    assert (forecast.running, forecast.mean_work, forecast.load_s, forecast.step_s) == (1, 4.0, 25.0, 0.1)
    assert forecast.pace is not None
    assert forecast.pace.mean == pytest.approx(2.0, rel=0.1)
    positions = [await find_position(store, await get_task(store, task.id)) for task in tasks[2:]]
    assert sorted(positions) == [QueuePosition(1), QueuePosition(2)]
    assert await find_position(store, await get_task(store, running.id)) == LEASED

    await with_limits(store, max_crashes=2).release(QUEUE, running.id, running.attempt, ReleaseCause.CRASH)
    quarantined = await get_task(store, running.id)
    assert eta_details(quarantined, await find_position(store, quarantined), forecast, NOW) is None


@pytest.mark.parametrize(("replicas", "starts"), [({"STARTING": 1}, True), ({}, True), ({"RUNNING": 1}, False)])
async def test_details_say_that_the_model_starts(store: TaskStore, replicas: dict[str, int], starts: bool) -> None:
    async def report_replicas() -> dict[str, ReplicaCounts]:
        return {KLEIN: ReplicaCounts(replicas, target=1)}

    await store.submit(new_task(id="t", queue=KLEIN))
    windows = WindowReader(store)
    models = ModelStatusReader(store, windows, [KLEIN], report_replicas)
    details = await EtaReader(store, windows, models).details(await get_task(store, "t")) or {}
    assert ("message" in details, details["queue_position"]) == (starts, 1)
    await store.report(KLEIN, {}, {}, last_step=StepTiming(1, 0.1))
    details = await EtaReader(store, windows, models).details(await get_task(store, "t")) or {}
    assert "message" not in details, "a replica has reported a step"


def test_polls_show_positions_and_estimates_change_no_etag(start_service: StartService) -> None:
    service = start_service()
    with service.client() as client, service.client() as other:
        ready = client.create_task()
        service.worker.advance(ready, Status.GENERATING, progress=0.0)
        service.worker.deliver(ready, image_file(form="JPEG"))
        assert client.poll(ready).json()["details"] is None

        ids = [client.create_task(), client.create_task(), other.create_task()]
        polls = {task_id: client.poll(task_id) for task_id in ids}
        details = {task_id: poll.json()["details"] for task_id, poll in polls.items()}
        assert all(each.keys() == {"eta", "eta_range", "queue_position"} for each in details.values())
        positions = {task_id: each["queue_position"] for task_id, each in details.items()}
        assert positions[ids[1]] == 3, "a project's second task comes after another's first"
        turns = sorted(ids, key=lambda task_id: positions[task_id])
        with client.stream("GET", f"/v1/tasks/{turns[2]}/events") as response:
            data = next(line for line in response.iter_lines() if line.startswith("data:"))
        assert '"queue_position":3' in data

        [first] = service.worker.run(service.worker.tasks.lease(KLEIN, 1, ALL))
        assert first.id == turns[0]
        moved = client.poll(turns[2])
        assert moved.json()["details"]["queue_position"] == 2
        assert moved.headers["etag"] == polls[turns[2]].headers["etag"]
