"""From what submission wrote down to the job that the model gets."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
from support.job_records import new_job

from deployments.contract.events import Alive, Done, Event, Started
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from serve_app.dispatcher.attempt import Attempt, Dependencies, Stale, Timeouts, run_attempt
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease

INPUT = "inputs/t/0.png"
LARGEST_SEED = 2**64 - 1


class _Store:
    def __init__(self) -> None:
        self.limits_s: list[float | None] = []
        self.results: list[dict[str, Any]] = []
        self.details: list[dict[str, Any] | None] = []
        self.reports: list[tuple[str, dict[str, float], dict[str, str]]] = []

    async def advance(self, *_: Any, run_s: float | None = None, **__: Any) -> bool:
        self.limits_s.append(run_s)
        return True

    async def report(self, lane: str, counts: Mapping[str, float], setup: Mapping[str, str]) -> None:
        self.reports.append((lane, dict(counts), dict(setup)))

    async def complete(self, *_: Any, result: dict[str, Any], details: dict[str, Any] | None = None, **__: Any) -> bool:
        self.results.append(result)
        self.details.append(details)
        return True


class _Stream:
    def __init__(self, *warnings: str) -> None:
        self._warnings = warnings

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event]:
        yield Started()
        yield Alive()
        yield Alive({"steps": 4}, {"device": "cpu"})
        yield Done(Output("key", "image/png", 64, 80, 1, warnings=self._warnings))

    def cancel(self) -> None:
        pass


def _record(**fields: Any) -> str:
    return new_job(**{"height": 80, "seed": LARGEST_SEED, "references": (INPUT,), **fields}).encode()


async def _job(**fields: Any) -> GenerationJob:
    seen: list[GenerationJob] = []

    def call(job: GenerationJob) -> _Stream:
        seen.append(job)
        return _Stream()

    lease = Lease("t", 1, isolated=False, created=0.0, job=_record(**fields))
    await run_attempt(Attempt("lane", lease), Dependencies(call, Timeouts(1, 1)), cast(TaskStore, _Store()))
    return seen[0]


async def test_all_that_is_written_reaches_the_model() -> None:
    fields: dict[str, Any] = {"guidance": 2.5, "guidance_interval": 2, "mask": "m", "control": "c", "image_prompt": "i"}
    job = await _job(**fields, canny=(50, 200), transparent=True)
    assert {name: getattr(job, name) for name in fields} == fields
    assert (job.canny, job.transparent) == ((50, 200), True)


async def test_only_structured_prompts_have_a_layout() -> None:
    prompt = 'x [{"id": "a_1", "bbox": [0, 0, 9, 9], "desc": "d"}]'
    assert [row.name for row in (await _job(prompt=prompt, structured=True)).layout] == ["a_1"]
    assert (await _job(prompt=prompt, structured=False)).layout == ()


async def test_a_model_may_have_longer_than_others() -> None:
    store, lease = _Store(), Lease("t", 1, isolated=False, created=0.0, job=_record())
    dependencies = Dependencies(lambda job: _Stream(), Timeouts(1, 1, run_s=1800))
    await run_attempt(Attempt("lane", lease), dependencies, cast(TaskStore, store))
    assert set(store.limits_s) == {1800}


async def _told_left(left_s: float | None, run_s: float | None, waited_s: float = 0.0) -> float | None:
    seen: list[GenerationJob] = []

    def call(job: GenerationJob) -> _Stream:
        seen.append(job)
        return _Stream()

    lease = Lease("t", 2, isolated=False, created=0.0, job=_record(), left_s=left_s)
    attempt = Attempt("lane", lease, leased=time.monotonic() - waited_s)
    await run_attempt(attempt, Dependencies(call, Timeouts(1, 1, run_s=run_s)), cast(TaskStore, _Store()))
    return seen[0].seconds_left


async def test_the_model_is_told_how_long_a_job_may_take() -> None:
    assert await _told_left(None, 900) == 900, "the deadline is set by its start"
    assert await _told_left(None, None) is None
    left = await _told_left(60, 900, waited_s=20)
    assert left is not None
    assert 30 < left <= 40, "what an earlier attempt left of it, less the time that preparing took"
    assert await _told_left(60, 900, waited_s=70) == 0


async def test_no_clock_on_the_wall_decides_how_long_a_job_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + 300)
    left = await _told_left(60, 900)
    assert left is not None
    assert 50 < left <= 60


@pytest.mark.parametrize(
    ("said", "warnings", "details"),
    [
        ((), (), None),
        (("no cats",), ("too dark",), {"warnings": ["no cats", "too dark"]}),
    ],
)
async def test_what_could_not_be_done_stands_in_the_details(
    said: tuple[str, ...], warnings: tuple[str, ...], details: dict[str, Any] | None
) -> None:
    """What submission said of it, and what the model did."""
    store, lease = _Store(), Lease("t", 1, isolated=False, created=0.0, job=_record(warnings=said))
    dependencies = Dependencies(lambda job: _Stream(*warnings), Timeouts(1, 1))
    await run_attempt(Attempt("lane", lease), dependencies, cast(TaskStore, store))
    assert store.details == [details]


async def test_a_clock_that_is_set_back_meanwhile_makes_no_duration_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    true_time = time.time

    class SetBack(_Stream):
        async def _events(self) -> AsyncIterator[Event]:
            async for event in super()._events():
                if isinstance(event, Done):
                    monkeypatch.setattr(time, "time", lambda: true_time() - 300)
                yield event

    store, lease = _Store(), Lease("t", 1, isolated=False, created=0.0, job=_record())
    began = time.monotonic()
    dependencies = Dependencies(lambda job: SetBack(), Timeouts(1, 1))
    await run_attempt(Attempt("lane", lease), dependencies, cast(TaskStore, store))
    (result,) = store.results
    assert 0 <= result["duration"] <= round(time.monotonic() - began, 3)
    assert abs(result["end_time"] - result["start_time"] - result["duration"]) < 0.01


async def test_what_a_replica_tells_of_its_work_is_added_to_its_lane() -> None:
    store = _Store()
    attempt = Attempt("lane", Lease("t", 1, isolated=False, created=0.0, job=_record()))
    await run_attempt(attempt, Dependencies(lambda job: _Stream(), Timeouts(1, 1)), cast(TaskStore, store))
    assert store.reports == [("lane", {"steps": 4}, {"device": "cpu"})]
    assert len(store.results) == 1


async def test_of_a_result_that_is_refused_no_file_stays() -> None:
    """Its task was cancelled while the result was on its way."""

    class Refusing(_Store):
        async def complete(self, *_: Any, **__: Any) -> bool:
            return False

    objects = ObjectStore("memory:///")
    for key in ("key", "of another"):
        await objects.put(key, b"x", "image/png")
    lease = Lease("t", 1, isolated=False, created=0.0, job=_record())
    dependencies = Dependencies(lambda job: _Stream(), Timeouts(1, 1), objects=objects)
    with pytest.raises(Stale):
        await run_attempt(Attempt("lane", lease), dependencies, cast(TaskStore, Refusing()))
    assert await objects.keys("") == ["of another"]
