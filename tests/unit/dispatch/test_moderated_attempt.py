"""The way of a task past the moderator: what is refused on the way in and out, and what anyone can see of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from support.job_records import new_job

from deployments.contract.events import Done, Event, Failed, Interrupted, Preview, Started
from deployments.contract.job import GenerationJob, Output
from deployments.contract.moderation import Scores, Thresholds
from deployments.contract.objects import ObjectStore
from serve_app.dispatcher.attempt import (
    MODERATION_REASONS,
    Attempt,
    Dependencies,
    Timeouts,
    Unavailable,
    Write,
    run_attempt,
)
from serve_app.moderation.gate import Gate
from serve_app.schemas.plan import ClipPlan
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Lease, Status

CLIP: dict[str, Any] = {
    "output_format": "mp4",
    "start_video": "inputs/t/1.mp4",
    "clip": ClipPlan(seconds=5, sound=True, times=(0.0,), draft=True),
}
THRESHOLDS = Thresholds({"violence": (0.2, 0.4, 0.6)})


class Store:
    """Remembers what was published."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.outcome: dict[str, Any] = {}
        self.previews: list[str] = []

    async def advance(self, lane: str, id: str, attempt: int, status: Status, **fields: Any) -> bool:
        if "preview" in fields:
            self.previews.append(fields["preview"]["key"])
        return True

    async def complete(
        self, lane: str, id: str, attempt: int, status: Status, *, device_s: float, **outcome: Any
    ) -> bool:
        self.status, self.outcome = status, outcome
        return True


class Model:
    """Writes a preview and a picture to where the job says; of a video, latents and how far it is, too."""

    def __init__(self, objects: ObjectStore) -> None:
        self.jobs: list[GenerationJob] = []
        self.fails = self.breaks = False
        self._objects = objects

    def __call__(self, job: GenerationJob) -> Model:
        self.jobs.append(job)
        return self

    async def __aiter__(self) -> AsyncIterator[Event]:
        job = self.jobs[-1]
        yield Started()
        for name in ("preview-1.jpeg", "picture.png", "thumbnail.jpeg"):
            await self._objects.put(f"{job.output_prefix}/{name}", b"x", "image/png")
        yield Preview(f"{job.output_prefix}/preview-1.jpeg", 1, 3)
        draft = None
        if job.clip is not None:
            draft = f"{job.output_prefix}/draft.safetensors"
            for key in (draft, job.clip.checkpoint):
                await self._objects.put(key, b"x", "application/octet-stream")
        if self.breaks:
            yield Interrupted("out of reach", blame=False)
        elif self.fails:
            yield Failed("it can't be done")
        thumbnail = f"{job.output_prefix}/thumbnail.jpeg"
        yield Done(Output(f"{job.output_prefix}/picture.png", "image/png", 64, 64, 1, draft, thumbnail))

    def cancel(self) -> None:
        pass


def _record(**changes: Any) -> str:
    asked = {"prompt": "two knights", "references": ("inputs/t/0.png",), "safety_tolerance": 2}
    return new_job(**(asked | changes)).encode()


class Scene:
    """One task, with what the moderator thinks of what is in it."""

    def __init__(self, scores: dict[str, float], fails: Callable[[str], bool] = lambda what: False) -> None:
        self.objects = ObjectStore("memory:///")
        self.store = Store()
        self.model = Model(self.objects)
        self._scores = scores
        self._fails = fails

    async def _judge(self, what: str) -> Scores:
        if self._fails(what):
            raise ConnectionError("gone")
        return {"violence": self._scores.get(what.rpartition("/")[2], 0.0)}

    async def play(self, leaving: bool = False, rewrite_by: Write | None = None, **changes: Any) -> None:
        gate = Gate(self._judge, self._judge, THRESHOLDS, self.objects, wait_s=0)
        lease = Lease("t", 1, isolated=False, created=0.0, job=_record(**changes))
        dependencies = Dependencies(
            self.model, Timeouts(1, 1), gate=gate, objects=self.objects, rewrite_edit=rewrite_by
        )
        store = cast(TaskStore, self.store)
        await run_attempt(Attempt("lane", lease), dependencies, store, draining=lambda: leaving)


async def test_what_passes_ends_where_links_lead() -> None:
    scene = Scene({})
    await scene.play()
    assert scene.model.jobs[0].output_prefix == "unjudged/t/1"
    assert scene.store.status is Status.READY
    assert scene.store.outcome["result"]["key"] == "results/t/1/picture.png"
    assert scene.store.outcome["result"]["thumbnail"] == "results/t/1/thumbnail.jpeg"
    assert scene.store.previews == ["results/t/1/preview-1.jpeg"]
    assert await scene.objects.keys("unjudged") == []


@pytest.mark.parametrize("what", ["two knights", "0.png", "c.png", "i.png"])
async def test_a_refused_request_never_reaches_the_model(what: str) -> None:
    scene = Scene({what: 0.9})
    await scene.play(control="inputs/t/c.png", image_prompt="inputs/t/i.png")
    assert scene.model.jobs == []
    assert scene.store.status is Status.REQUEST_MODERATED
    assert scene.store.outcome == {"details": {MODERATION_REASONS: ["violence"]}}


async def test_a_refused_result_is_deleted_and_was_never_where_links_lead() -> None:
    scene = Scene({"picture.png": 0.9})
    await scene.play()
    assert scene.store.status is Status.CONTENT_MODERATED
    assert scene.store.outcome == {"details": {MODERATION_REASONS: ["violence"]}}
    assert await scene.objects.keys("unjudged") == []
    assert await scene.objects.keys("results") == ["results/t/1/preview-1.jpeg"]


async def test_a_refused_preview_is_not_shown() -> None:
    scene = Scene({"preview-1.jpeg": 0.9})
    await scene.play()
    assert scene.store.previews == []
    assert scene.store.status is Status.READY


@pytest.mark.parametrize(("level", "status"), [(1, Status.REQUEST_MODERATED), (2, Status.READY)])
async def test_the_tolerance_decides(level: int, status: Status) -> None:
    scene = Scene({"two knights": 0.5})
    await scene.play(safety_tolerance=level)
    assert scene.store.status is status


async def test_a_ceiling_decides_over_the_tolerance() -> None:
    scene = Scene({"two knights": 0.5})
    await scene.play(safety_tolerance=5, safety_ceilings={"violence": 0})
    assert scene.store.status is Status.REQUEST_MODERATED


@pytest.mark.parametrize("what", ["two knights", "0.png", "picture.png"])
async def test_what_can_not_be_judged_ends_as_an_error(what: str) -> None:
    scene = Scene({}, fails=lambda asked: asked.endswith(what))
    await scene.play()
    assert scene.store.status is Status.ERROR
    assert "could not be checked" in scene.store.outcome["details"]["error"]
    assert not any(key.endswith("picture.png") for key in await scene.objects.keys("results"))


@pytest.mark.parametrize(
    ("written", "used"), [("two knights at tea", "two knights at tea"), ("a battle", "two knights")]
)
async def test_a_rewritten_prompt_is_used_if_it_passes_too(written: str, used: str) -> None:
    async def rewrite(prompt: str, seed: int) -> str:
        return written

    scene = Scene({"a battle": 0.9})
    await scene.play(rewrite_by=rewrite, rewrite=True)
    assert (scene.model.jobs[0].prompt, scene.store.status) == (used, Status.READY)


async def test_a_preview_that_can_not_be_judged_is_not_shown() -> None:
    scene = Scene({}, fails=lambda asked: asked.endswith("preview-1.jpeg"))
    await scene.play()
    assert (scene.store.previews, scene.store.status) == ([], Status.READY)


async def test_a_process_that_shuts_down_gives_the_task_back() -> None:
    scene = Scene({}, fails=lambda what: True)
    gate_waits = Gate(scene._judge, scene._judge, THRESHOLDS, scene.objects, wait_s=60)
    lease = Lease("t", 1, isolated=False, created=0.0, job=_record())
    dependencies = Dependencies(scene.model, Timeouts(1, 1), gate=gate_waits)
    store = cast(TaskStore, scene.store)
    with pytest.raises(Unavailable):
        await run_attempt(Attempt("lane", lease), dependencies, store, draining=lambda: True)
    assert scene.store.status is None


# Videos.


async def test_a_draft_and_its_latents_end_where_links_lead() -> None:
    scene = Scene({})
    await scene.play(**CLIP)
    result = scene.store.outcome["result"]
    assert (result["key"], result["draft"]["key"]) == ("results/t/1/picture.png", "results/t/1/draft.safetensors")
    assert await scene.objects.keys("unjudged") == []
    assert set(await scene.objects.keys("results")) >= {result["key"], result["draft"]["key"]}


async def test_the_video_to_go_on_from_is_judged() -> None:
    scene = Scene({"1.mp4": 0.9})
    await scene.play(**CLIP)
    assert scene.model.jobs == []
    assert scene.store.status is Status.REQUEST_MODERATED


@pytest.mark.parametrize(
    ("scores", "fails", "status"),
    [
        ({}, False, Status.READY),
        ({}, True, Status.ERROR),
        ({"two knights": 0.9}, False, Status.REQUEST_MODERATED),
        ({"picture.png": 0.9}, False, Status.CONTENT_MODERATED),
    ],
)
async def test_whatever_a_video_comes_to_its_checkpoint_goes(
    scores: dict[str, float], fails: bool, status: Status
) -> None:
    scene = Scene(scores)
    scene.model.fails = fails
    await scene.objects.put("checkpoints/t.safetensors", b"of an earlier attempt", "application/octet-stream")
    await scene.objects.put("checkpoints/other.safetensors", b"x", "application/octet-stream")
    await scene.play(**CLIP)
    assert scene.store.status is status
    assert await scene.objects.keys("checkpoints") == ["checkpoints/other.safetensors"]


async def test_the_next_attempt_finds_the_checkpoint() -> None:
    scene = Scene({})
    scene.model.breaks = True
    with pytest.raises(Unavailable):
        await scene.play(**CLIP)
    assert scene.store.status is None
    assert await scene.objects.keys("checkpoints") == ["checkpoints/t.safetensors"]
