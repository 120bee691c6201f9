"""From what submission wrote down to the job that the model gets."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import pytest
from support.payloads import new_payload

from deployments.contract.events import Alive, Done, Event, Failed, Interrupted, Preview, Started
from deployments.contract.job import GenerationJob, Output
from deployments.contract.moderation import Scores, Thresholds, Tolerance
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from serve_app.dispatcher.attempt import (
    MODERATION_REASONS,
    SAFETY_CHECKER,
    Attempt,
    Dependencies,
    Stale,
    Timeouts,
    Unavailable,
    Write,
    run_attempt,
)
from serve_app.moderation.gate import Gate
from serve_app.schemas.layout import parse_layout
from serve_app.tasks.result import GenerationResult
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, Status

INPUT = "inputs/t/0.png"
LARGEST_SEED = 2**64 - 1


class _Store:
    def __init__(self) -> None:
        self.limits_s: list[float | None] = []
        self.results: list[GenerationResult] = []
        self.details: list[dict[str, Any] | None] = []
        self.reports: list[tuple[dict[str, float], dict[str, str]]] = []

    async def advance(self, *_: Any, run_s: float | None = None, **__: Any) -> bool:
        self.limits_s.append(run_s)
        return True

    def report(self, counts: Mapping[str, float], setup: Mapping[str, str]) -> None:
        self.reports.append((dict(counts), dict(setup)))

    async def complete(
        self, *_: Any, result: GenerationResult, details: dict[str, Any] | None = None, **__: Any
    ) -> bool:
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
    return new_payload(**{"height": 80, "seed": LARGEST_SEED, "references": (INPUT,), **fields}).encode()


async def _run(
    store: _Store | None = None,
    stream: _Stream | None = None,
    *,
    run_s: float | None = None,
    remaining_s: float | None = None,
    waited_s: float = 0.0,
    objects: ObjectStore | None = None,
    **fields: Any,
) -> GenerationJob:
    """An attempt; the job that the model got."""
    jobs: list[GenerationJob] = []

    def call(job: GenerationJob) -> _Stream:
        jobs.append(job)
        return stream or _Stream()

    lease = Lease("t", 1, exclusive=False, created=0.0, job=_record(**fields), remaining_s=remaining_s)
    attempt = Attempt("model", lease, leased_at=time.monotonic() - waited_s)
    store = store or _Store()
    dependencies = Dependencies(call, Timeouts(1, 1, run_s=run_s), objects=objects, on_report=store.report)
    await run_attempt(attempt, dependencies, cast(TaskStore, store))
    return jobs[0]


async def test_all_that_is_written_reaches_the_model() -> None:
    fields: dict[str, Any] = {"guidance": 2.5, "guidance_interval": 2, "mask": "m", "control": "c", "image_prompt": "i"}
    job = await _run(**fields, canny=(50, 200), transparent=True)
    assert {name: getattr(job.request, name, None) or getattr(job.inputs, name) for name in fields} == fields
    assert (job.request.canny, job.request.transparent) == ((50, 200), True)


async def test_only_structured_prompts_have_a_layout() -> None:
    prompt = 'x [{"id": "a_1", "bbox": [0, 0, 9, 9], "desc": "d"}]'
    assert [row.name for row in (await _run(prompt=prompt, layout=parse_layout(prompt))).request.layout] == ["a_1"]


async def test_the_model_is_told_how_long_a_job_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _Store()
    assert (await _run(store, run_s=900)).remaining_s == 900, "the deadline is set by its start"
    assert set(store.limits_s) == {900}
    assert (await _run()).remaining_s is None
    remaining_s = (await _run(remaining_s=60, run_s=900, waited_s=20)).remaining_s
    assert remaining_s is not None
    assert 30 < remaining_s <= 40, "what an earlier attempt left of it, less the time that preparing took"
    assert (await _run(remaining_s=60, run_s=900, waited_s=70)).remaining_s == 0
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + 300)
    assert 50 < ((await _run(remaining_s=60, run_s=900)).remaining_s or 0) <= 60, "no clock on the wall decides"


@pytest.mark.parametrize(
    ("notes", "warnings", "details"),
    [((), (), None), (("no cats",), ("too dark",), {"warnings": ["no cats", "too dark"]})],
)
async def test_what_could_not_be_done_stands_in_the_details(
    notes: tuple[str, ...], warnings: tuple[str, ...], details: dict[str, Any] | None
) -> None:
    """What submission said of it, and what the model did."""
    store = _Store()
    await _run(store, _Stream(*warnings), warnings=notes)
    assert store.details == [details]
    assert store.reports == [({"steps": 4}, {"device": "cpu"})]


async def test_a_clock_that_is_set_back_meanwhile_makes_no_duration_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    true_time = time.time

    class SetBack(_Stream):
        async def _events(self) -> AsyncIterator[Event]:
            async for event in super()._events():
                if isinstance(event, Done):
                    monkeypatch.setattr(time, "time", lambda: true_time() - 300)
                yield event

    store, began = _Store(), time.monotonic()
    await _run(store, SetBack())
    (result,) = store.results
    assert 0 <= result.duration <= round(time.monotonic() - began, 3)
    assert abs(result.end_time - result.start_time - result.duration) < 0.01


async def test_of_a_result_that_is_refused_no_file_stays() -> None:
    """Its task was cancelled while the result was on its way."""

    class Refusing(_Store):
        async def complete(self, *_: Any, **__: Any) -> bool:
            return False

    objects = ObjectStore("memory:///")
    for key in ("key", "of another"):
        await objects.put(key, b"x", "image/png")
    with pytest.raises(Stale):
        await _run(Refusing(), objects=objects)
    assert await objects.keys("") == ["of another"]


VIDEO: dict[str, Any] = {
    "output_format": "mp4",
    "start_video": "inputs/t/1.mp4",
    "video": VideoParams(frames=120, times=(0.0,), draft=True),
}
THRESHOLDS = Thresholds({"violence": (0.2, 0.4, 0.6)})


class Store:
    """Remembers what was published."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.files_at_end: list[str] = []
        self.status: Status | None = None
        self.outcome: dict[str, Any] = {}
        self.previews: list[str] = []

    async def advance(self, queue: str, id: str, attempt: int, status: Status, **fields: Any) -> bool:
        if "preview" in fields:
            self.previews.append(fields["preview"].key)
        return True

    async def complete(
        self, queue: str, id: str, attempt: int, status: Status, *, device_s: float, **outcome: Any
    ) -> bool:
        self.status, self.outcome = status, outcome
        self.files_at_end = await self._objects.keys("results")
        return True


class Model:
    """Writes a preview and an image to where the job says; of a video, latents and how far it is, too."""

    def __init__(self, objects: ObjectStore) -> None:
        self.jobs: list[GenerationJob] = []
        self.fails = self.breaks = self.withholds = False
        self._objects = objects

    def __call__(self, job: GenerationJob) -> Model:
        self.jobs.append(job)
        return self

    async def __aiter__(self) -> AsyncIterator[Event]:
        job = self.jobs[-1]
        yield Started()
        for name in ("preview-1.jpeg", "image.png", "thumbnail.jpeg"):
            await self._objects.put(f"{job.output_prefix}/{name}", b"x", "image/png")
        yield Preview(f"{job.output_prefix}/preview-1.jpeg", 1, 3)
        draft = None
        if job.request.video is not None:
            draft = f"{job.output_prefix}/draft.safetensors"
            for key in (draft, job.checkpoint):
                await self._objects.put(key, b"x", "application/octet-stream")
        if self.breaks:
            yield Interrupted("out of reach", blame=False)
        elif self.fails:
            yield Failed("it can't be done")
        elif self.withholds:
            yield Failed("withheld", moderated=True)
        thumbnail = f"{job.output_prefix}/thumbnail.jpeg"
        key = f"{job.output_prefix}/image.png"
        yield Done(Output(key, "image/png", 64, 64, 1, draft, thumbnail, proxy=thumbnail, previews=(1,)))

    def cancel(self) -> None:
        pass


def _moderated_record(**changes: Any) -> str:
    defaults = {"prompt": "two knights", "references": ("inputs/t/0.png",), "safety": Tolerance(2)}
    return new_payload(**(defaults | changes)).encode()


class Scene:
    """One task, with what the moderator thinks of what is in it."""

    def __init__(self, scores: dict[str, float], fails: Callable[[str], bool] = lambda what: False) -> None:
        self.objects = ObjectStore("memory:///")
        self.store = Store(self.objects)
        self.model = Model(self.objects)
        self._scores = scores
        self._fails = fails

    async def _classifier(self, what: str) -> Scores:
        if self._fails(what):
            raise ConnectionError("gone")
        return {"violence": self._scores.get(what.rpartition("/")[2], 0.0)}

    async def play(self, rewrite_by: Write | None = None, *, cancelled: bool = False, **changes: Any) -> None:
        gate = Gate(self._classifier, self._classifier, THRESHOLDS, self.objects, wait_s=0)
        lease = Lease("t", 1, exclusive=False, created=0.0, job=_moderated_record(**changes))
        dependencies = Dependencies(
            self.model, Timeouts(1, 1), gate=gate, objects=self.objects, rewrite_edit=rewrite_by
        )
        store = cast(TaskStore, self.store)
        await run_attempt(Attempt("model", lease, ended=cancelled), dependencies, store)


async def test_what_passes_is_linked_where_the_model_stored_it() -> None:
    scene = Scene({})
    await scene.play()
    assert scene.store.status is Status.READY
    assert scene.store.outcome["result"].key == "results/t/1/image.png"
    assert scene.store.outcome["result"].thumbnail == "results/t/1/thumbnail.jpeg"
    assert scene.store.outcome["result"].files == ("image.png", "thumbnail.jpeg", "preview-1.jpeg")
    assert scene.store.previews == ["results/t/1/preview-1.jpeg"]


@pytest.mark.parametrize("what", ["two knights", "0.png", "c.png", "i.png"])
async def test_a_refused_request_never_reaches_the_model(what: str) -> None:
    scene = Scene({what: 0.9})
    await scene.play(control="inputs/t/c.png", image_prompt="inputs/t/i.png")
    assert scene.model.jobs == []
    assert scene.store.status is Status.REQUEST_MODERATED
    assert scene.store.outcome == {"details": {MODERATION_REASONS: ["violence"]}}


async def test_result_that_the_model_withholds_is_moderated() -> None:
    scene = Scene({})
    scene.model.withholds = True
    await scene.play()
    assert scene.store.status is Status.CONTENT_MODERATED
    assert scene.store.outcome == {"details": {MODERATION_REASONS: [SAFETY_CHECKER]}}


async def test_of_a_refused_result_no_file_is_left_when_its_task_ends() -> None:
    scene = Scene({"thumbnail.jpeg": 0.9})
    await scene.play()
    assert scene.store.status is Status.CONTENT_MODERATED
    assert scene.store.outcome == {"details": {MODERATION_REASONS: ["violence"]}}
    assert scene.store.files_at_end == []


@pytest.mark.parametrize("fails", [False, True])
async def test_a_preview_that_is_refused_or_can_not_be_moderated_is_not_shown(fails: bool) -> None:
    scene = Scene({"preview-1.jpeg": 0.9}, fails=lambda key: fails and key.endswith("preview-1.jpeg"))
    await scene.play()
    assert (scene.store.previews, scene.store.status) == ([], Status.READY)


@pytest.mark.parametrize(
    ("level", "ceilings", "status"),
    [(1, {}, Status.REQUEST_MODERATED), (2, {}, Status.READY), (5, {"violence": 0}, Status.REQUEST_MODERATED)],
)
async def test_the_tolerance_decides_and_a_ceiling_over_it(
    level: int, ceilings: dict[str, int], status: Status
) -> None:
    scene = Scene({"two knights": 0.5})
    await scene.play(safety=Tolerance(level, ceilings))
    assert scene.store.status is status


@pytest.mark.parametrize("what", ["two knights", "0.png", "thumbnail.jpeg"])
async def test_what_can_not_be_moderated_ends_as_an_error(what: str) -> None:
    scene = Scene({}, fails=lambda name: name.endswith(what))
    await scene.play()
    assert scene.store.status is Status.ERROR
    assert "could not be checked" in scene.store.outcome["details"]["error"]
    assert "result" not in scene.store.outcome


@pytest.mark.parametrize(
    ("answer", "used"), [("two knights at tea", "two knights at tea"), ("a battle", "two knights")]
)
async def test_a_rewritten_prompt_is_used_if_it_passes_too(answer: str, used: str) -> None:
    async def rewrite(prompt: str, seed: int) -> str:
        return answer

    scene = Scene({"a battle": 0.9})
    await scene.play(rewrite_by=rewrite, rewrite=True)
    assert (scene.model.jobs[0].request.prompt, scene.store.status) == (used, Status.READY)


async def test_a_process_that_shuts_down_gives_the_task_back() -> None:
    scene = Scene({}, fails=lambda what: True)
    gate_waits = Gate(scene._classifier, scene._classifier, THRESHOLDS, scene.objects, wait_s=60)
    lease = Lease("t", 1, exclusive=False, created=0.0, job=_moderated_record())
    dependencies = Dependencies(scene.model, Timeouts(1, 1), gate=gate_waits)
    store = cast(TaskStore, scene.store)
    with pytest.raises(Unavailable):
        await run_attempt(Attempt("model", lease), dependencies, store, draining=lambda: True)
    assert scene.store.status is None


async def test_the_video_to_go_on_from_is_moderated() -> None:
    scene = Scene({"1.mp4": 0.9})
    await scene.play(**VIDEO)
    assert scene.model.jobs == []
    assert scene.store.status is Status.REQUEST_MODERATED


@pytest.mark.parametrize(
    ("scores", "fails", "status"),
    [
        ({}, False, Status.READY),
        ({}, True, Status.ERROR),
        ({"two knights": 0.9}, False, Status.REQUEST_MODERATED),
        ({"thumbnail.jpeg": 0.9}, False, Status.CONTENT_MODERATED),
    ],
)
async def test_whatever_a_video_comes_to_its_checkpoint_goes(
    scores: dict[str, float], fails: bool, status: Status
) -> None:
    scene = Scene(scores)
    scene.model.fails = fails
    await scene.objects.put("checkpoints/t.safetensors", b"of an earlier attempt", "application/octet-stream")
    await scene.objects.put("checkpoints/other.safetensors", b"x", "application/octet-stream")
    await scene.play(**VIDEO)
    assert scene.store.status is status
    assert await scene.objects.keys("checkpoints") == ["checkpoints/other.safetensors"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_the_next_attempt_finds_the_checkpoint_unless_there_is_none(cancelled: bool) -> None:
    scene = Scene({})
    scene.model.breaks = True
    with pytest.raises(Unavailable):
        await scene.play(**VIDEO, cancelled=cancelled)
    assert scene.store.status is None
    assert await scene.objects.keys("checkpoints") == ([] if cancelled else ["checkpoints/t.safetensors"])
