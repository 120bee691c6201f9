"""A lane against a simulated model and the real store: what happens when something dies, hangs or changes its mind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError
from redis.exceptions import ConnectionError as RedisConnectionError
from support.lanes import PATIENCE_S, PRICE, Scene
from support.tasks import LANE, make_due

from deployments.contract.job import GenerationJob
from deployments.contract.moderation import Thresholds
from deployments.contract.objects import ObjectStore
from serve_app.dispatcher import queue
from serve_app.dispatcher.attempt import Stream, Write
from serve_app.moderation.gate import Gate
from serve_app.tasks.task import Status

THRESHOLDS = Thresholds({"violence": (0.2, 0.4, 0.6)})


async def test_tasks_flow_through(scene: Scene) -> None:
    scene.dispatcher()
    tasks = await scene.ended(await scene.submit(40))
    assert {task.status for task in tasks} == {Status.READY}
    assert {task.cost for task in tasks} == {PRICE}
    assert {task.attempt for task in tasks} == {1}
    first = tasks[0]
    assert first.result is not None
    assert first.result["key"] == f"results/{first.id}/1/picture.png"


async def test_few_tasks_are_committed_before_they_start(scene: Scene) -> None:
    scene.model.admitting.clear()
    scene.dispatcher(headroom=4)
    ids = await scene.submit(30)
    await scene.until(lambda: len(scene.model.waiting) == 4)
    assert (await scene.store.counts(LANE))["leased"] == 4
    scene.model.admitting.set()
    await scene.ended(ids)


async def test_a_dead_replica_costs_its_tasks_one_strike_and_they_run_again_at_once(scene: Scene) -> None:
    scene.dispatcher()
    scene.model.finishing.clear()
    ids = await scene.submit(10)
    await scene.until(lambda: len(scene.model.running) == 10)
    scene.model.die()
    scene.model.finishing.set()
    tasks = await scene.ended(ids)
    assert {(task.status, task.attempt, task.strikes) for task in tasks} == {(Status.READY, 2, 1)}


async def test_a_dead_dispatcher_is_followed_by_another(scene: Scene) -> None:
    first = scene.dispatcher()
    scene.model.finishing.clear()
    ids = await scene.submit(8)
    await scene.until(lambda: len(scene.model.running) == 8)
    await scene.kill(first)
    scene.model.finishing.set()
    scene.dispatcher()

    async def all_reaped() -> bool:
        await scene.store.reap(LANE)
        return (await scene.store.counts(LANE)).get("reaped", 0) == 8

    await scene.until(all_reaped)
    tasks = await scene.ended(ids)
    assert {task.status for task in tasks} == {Status.READY}


async def test_poison_ends_alone_and_no_batch_mate_with_it(scene: Scene) -> None:
    scene.dispatcher(headroom=8)
    ids = await scene.submit(30)
    (poison,) = await scene.submit(1, prompt="poison")
    more = await scene.submit(30)
    tasks = await scene.ended([*ids, poison, *more])
    by_id = {task.id: task for task in tasks}
    assert by_id[poison].status is Status.ERROR
    assert by_id[poison].details is not None
    assert {by_id[task_id].status for task_id in [*ids, *more]} == {Status.READY}
    assert scene.model.deaths <= 3


async def test_cancelling_stops_the_work(scene: Scene) -> None:
    dispatcher = scene.dispatcher()
    scene.model.finishing.clear()
    (task_id,) = await scene.submit()
    await scene.until(lambda: scene.model.running)
    await scene.store.cancel(task_id, "p")
    dispatcher.stop(task_id)
    await scene.until(lambda: not scene.model.running)
    assert (await scene.task(task_id)).details == {"error": "Cancelled by the client"}
    assert scene.model.finished == {}


async def test_cancelled_work_stops_by_the_heartbeat_when_the_message_is_lost(scene: Scene) -> None:
    scene.dispatcher()
    scene.model.finishing.clear()
    (task_id,) = await scene.submit()
    await scene.until(lambda: scene.model.running)
    await scene.store.cancel(task_id, "p")
    await scene.until(lambda: not scene.model.running)


async def test_a_silent_model_counts_as_lost(scene: Scene) -> None:
    scene.dispatcher(stall_s=1.1)
    scene.model.finishing.clear()
    (task_id,) = await scene.submit()
    await scene.until(lambda: scene.model.started[task_id] == 2)
    scene.model.finishing.set()
    (task,) = await scene.ended([task_id])
    assert task.status is Status.READY
    assert task.strikes >= 1


async def test_a_model_that_does_not_begin_costs_no_strike(scene: Scene) -> None:
    scene.dispatcher(start_s=0.2)
    scene.model.admitting.clear()
    (task_id,) = await scene.submit()

    async def tried_twice() -> bool:
        return (await scene.task(task_id)).attempt >= 2

    await scene.until(tried_twice)
    scene.model.admitting.set()
    (task,) = await scene.ended([task_id])
    assert (task.status, task.strikes) == (Status.READY, 0)


async def test_draining_gives_back_what_has_not_begun_and_finishes_the_rest(scene: Scene) -> None:
    dispatcher = scene.dispatcher(headroom=3)
    scene.model.finishing.clear()
    begun = await scene.submit(2)
    await scene.until(lambda: len(scene.model.running) == 2)
    scene.model.admitting.clear()
    waiting = await scene.submit(5)
    await scene.until(lambda: len(scene.model.waiting) == 3)

    drained = asyncio.create_task(dispatcher.drain(PATIENCE_S))
    await scene.until(lambda: not scene.model.waiting)
    scene.model.finishing.set()
    await drained
    for task_id in begun:
        assert (await scene.task(task_id)).status is Status.READY
    for task_id in waiting:
        task = await scene.task(task_id)
        assert (task.status, task.strikes) == (Status.PENDING, 0)
    assert (await scene.store.counts(LANE))["leased"] == 0


async def assert_work_goes_back_without_a_strike(scene: Scene) -> None:
    """Where a dispatcher drains that has a task at work."""
    dispatcher = scene.dispatcher()
    scene.model.finishing.clear()
    (task_id,) = await scene.submit()
    await scene.until(lambda: scene.model.running)
    await dispatcher.drain(0.05)
    task = await scene.task(task_id)
    assert (task.status, task.strikes) == (Status.PENDING, 0)


async def test_a_drain_that_takes_too_long_gives_the_rest_back(scene: Scene) -> None:
    await assert_work_goes_back_without_a_strike(scene)


async def test_a_drain_gives_back_what_waits_for_a_judge(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_LAST_S", 0.1)
    judging = asyncio.Event()

    async def passes(text: str) -> dict[str, float]:
        return {}

    async def hangs(key: str) -> dict[str, float]:
        judging.set()
        await asyncio.Event().wait()
        raise AssertionError

    scene.gate = Gate(passes, hangs, THRESHOLDS, ObjectStore("memory:///"))
    dispatcher = scene.dispatcher()
    (task_id,) = await scene.submit()
    async with asyncio.timeout(PATIENCE_S):
        await judging.wait()
    await dispatcher.drain(0.05)
    task = await scene.task(task_id)
    assert (task.status, task.strikes) == (Status.PENDING, 0)
    assert (await scene.store.counts(LANE))["leased"] == 0


async def test_two_dispatchers_share_the_work_and_double_nothing(scene: Scene) -> None:
    scene.model.admitting.clear()
    for _ in range(2):
        scene.dispatcher(headroom=4)
    ids = await scene.submit(200)
    # One dispatcher alone would have its headroom waiting, and no more.
    await scene.until(lambda: len(scene.model.waiting) == 8)
    scene.model.admitting.set()
    tasks = await scene.ended(ids)
    assert {task.status for task in tasks} == {Status.READY}
    assert set(scene.model.finished.values()) == {1}


async def test_a_prompt_is_rewritten_where_that_is_asked_for(scene: Scene) -> None:
    async def rewrite(prompt: str, seed: int) -> str:
        return f"{prompt}, at dawn, {seed}"

    scene.rewrite = rewrite
    scene.dispatcher()
    (plain,) = await scene.ended(await scene.submit())
    (rewritten,) = await scene.ended(await scene.submit(rewrite=True))
    assert plain.result is not None
    assert plain.result["prompt"] == "a star"
    assert rewritten.result is not None
    assert rewritten.result["prompt"] == "a star, at dawn, 1"


@pytest.mark.parametrize("asked", [False, True])
async def test_the_prompt_of_an_edit_is_rewritten_as_one_or_not_at_all(scene: Scene, asked: bool) -> None:
    async def enrich(prompt: str, seed: int) -> str:
        return f"{prompt}, warm afternoon light"

    async def clear_up(prompt: str, seed: int) -> str:
        return f"{prompt}; all else stays"

    scene.rewrite, scene.rewrite_edit = enrich, clear_up if asked else None
    scene.dispatcher()
    edit = await scene.submit(prompt="remove the circle", rewrite=True, references=("inputs/t/0.png",))
    (task,) = await scene.ended(edit)
    assert task.result is not None
    assert task.result["prompt"] == ("remove the circle; all else stays" if asked else "remove the circle")


def jobs_of(scene: Scene) -> list[GenerationJob]:
    """Those that reach the model from now on."""
    jobs, call = list[GenerationJob](), scene.call

    def noted(job: GenerationJob) -> Stream:
        jobs.append(job)
        return call(job)

    scene.call = noted
    return jobs


def say(text: str) -> Write:
    async def write(prompt: str, seed: int) -> str:
        return text

    return write


async def fail(prompt: str, seed: int) -> str:
    raise ActorUnavailableError("gone", None)


async def hang(prompt: str, seed: int) -> str:
    return await asyncio.Future()


@pytest.mark.parametrize(
    ("prompt", "ratio", "size"),
    [
        ("a giraffe", say("2:3"), (832, 1248)),
        ("a giraffe", say("A phone wallpaper suits it."), (768, 1360)),
        ("a giraffe, square format", say("2:3"), (832, 1248)),
        ("a giraffe, square format", say("I like giraffes."), (1024, 1024)),
        ("a giraffe, square format", fail, (1024, 1024)),
        ("a giraffe, square format", hang, (1024, 1024)),
        ("a giraffe, square format", None, (1024, 1024)),
        ("a giraffe", fail, (1360, 768)),
        ("a giraffe", None, (1360, 768)),
    ],
)
async def test_a_ratio_is_the_rewriters_else_that_of_the_words_else_wide(
    scene: Scene, prompt: str, ratio: Write | None, size: tuple[int, int]
) -> None:
    jobs, scene.ratio = jobs_of(scene), ratio
    scene.dispatcher()
    (task,) = await scene.ended(await scene.submit(prompt=prompt, width=None, height=None, area=1024**2))
    assert task.result is not None
    assert task.result["prompt"] == prompt
    assert [(job.width, job.height) for job in jobs] == [size]


async def test_the_rewriter_chooses_no_ratio_that_was_asked_for(scene: Scene) -> None:
    jobs, scene.ratio = jobs_of(scene), say("2:3")
    scene.dispatcher()
    await scene.ended(await scene.submit(width=80, height=80))
    assert [(job.width, job.height) for job in jobs] == [(80, 80)]


async def test_the_rewriter_sees_no_table_of_the_prompt(scene: Scene) -> None:
    seen = list[str]()

    async def note(prompt: str, seed: int) -> str:
        seen.append(prompt)
        return ""

    scene.ratio = note
    scene.dispatcher()
    prompt = 'a giraffe [{"id": "a_1", "bbox": [0, 0, 9, 9], "desc": "16:9"}]'
    await scene.ended(await scene.submit(prompt=prompt, width=None, height=None, structured=True))
    assert [text.strip() for text in seen] == ["a giraffe"]


@pytest.mark.parametrize("failure", ["error", "silence"])
async def test_a_rewriter_that_fails_leaves_the_prompt_as_it_is(scene: Scene, failure: str) -> None:
    async def rewrite(prompt: str, seed: int) -> str:
        if failure == "silence":
            await asyncio.Event().wait()
        raise ActorUnavailableError("gone", None)

    scene.rewrite = rewrite
    scene.dispatcher()
    (task,) = await scene.ended(await scene.submit(rewrite=True))
    assert task.status is Status.READY
    assert task.result is not None
    assert task.result["prompt"] == "a star"


async def test_a_slow_rewriter_keeps_no_model_idle(scene: Scene) -> None:
    slow = asyncio.Event()

    async def rewrite(prompt: str, seed: int) -> str:
        await slow.wait()
        return prompt

    scene.rewrite = rewrite
    scene.dispatcher(headroom=2, start_s=30)
    waiting = await scene.submit(4, rewrite=True)
    plain = await scene.submit(3)
    assert {task.status for task in await scene.ended(plain)} == {Status.READY}
    slow.set()
    await scene.ended(waiting)


@pytest.mark.parametrize("end", ["cancelled", "overdue"])
@pytest.mark.parametrize("told", ["by message", "by heartbeat"])
async def test_a_task_that_ends_while_it_is_prepared_never_reaches_the_model(scene: Scene, end: str, told: str) -> None:
    rewriting = asyncio.Event()

    async def rewrite(prompt: str, seed: int) -> str:
        rewriting.set()
        await asyncio.Event().wait()
        return prompt

    scene.rewrite = rewrite
    dispatcher = scene.dispatcher(rewrite_s=60)
    (task_id,) = await scene.submit(rewrite=True)
    await rewriting.wait()
    if end == "cancelled":
        await scene.store.cancel(task_id, "p")
    else:
        await make_due(scene.store, f"deadlines:{LANE}")
        assert await scene.store.end_overdue(LANE) == 1
    if told == "by message":
        dispatcher.stop(task_id)
    await scene.until(lambda: not dispatcher._attempts)
    assert scene.model.called == []
    plain = await scene.submit()
    assert {task.status for task in await scene.ended(plain)} == {Status.READY}


async def test_what_goes_back_without_a_strike_does_so_however_long_the_store_is_away(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = 3
    release = scene.store.release

    async def out_of_reach(*args: Any, **how: Any) -> int:
        nonlocal away
        away -= 1
        if away >= 0:
            raise RedisConnectionError("away")
        return await release(*args, **how)

    monkeypatch.setattr(scene.store, "release", out_of_reach)
    monkeypatch.setattr(queue, "_AGAIN_S", 0)
    await assert_work_goes_back_without_a_strike(scene)


async def test_a_lane_leases_only_while_its_model_has_its_turn(scene: Scene) -> None:
    turns = iter([False, False, True])
    asked = list[bool]()

    async def has_turn() -> bool:
        asked.append(next(turns, True))
        return asked[-1]

    scene.has_turn = has_turn
    scene.dispatcher()
    await scene.ended(await scene.submit(3))
    assert asked[:3] == [False, False, True]
