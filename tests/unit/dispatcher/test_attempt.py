"""The steps of an attempt: their writes to the store and the files that they leave."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError
from ray.serve.exceptions import RequestCancelledError
from support.attempts import THRESHOLDS, AttemptScene
from support.dispatchers import fake_rewriter

from deployments.contract.events import Alive, Failed, Interrupted
from deployments.contract.moderation import Scores, Tolerance
from deployments.contract.request import VideoParams
from serve_app.dispatcher import failures
from serve_app.dispatcher.attempt import (
    MODERATION_REASONS,
    SAFETY_CHECKER,
    AttemptOutcome,
    Phase,
    Timeouts,
)
from serve_app.moderation.gate import Gate
from serve_app.tasks.task import Status

LARGEST_SEED = 2**64 - 1
VIDEO: dict[str, Any] = {
    "output_format": "mp4",
    "start_video": "inputs/t/1.mp4",
    "video": VideoParams(frames=120, times=(0.0,), draft=True),
}


async def test_every_field_of_the_request_reaches_the_model() -> None:
    scene = AttemptScene()
    request: dict[str, Any] = {
        "guidance": 2.5,
        "guidance_interval": 2,
        "canny": (50, 200),
        "transparent": True,
        "seed": LARGEST_SEED,
    }
    inputs: dict[str, Any] = {"mask": "m", "control": "c", "image_prompt": "i"}
    assert await scene.attempt(**request, **inputs).run() is AttemptOutcome.PUBLISHED
    [job] = scene.model.jobs
    assert {name: getattr(job.request, name) for name in request} == request
    assert {name: getattr(job.inputs, name) for name in inputs} == inputs


@pytest.mark.parametrize(
    ("run_s", "remaining_s", "waited_s", "least", "most"),
    [(900, None, 0, 900, 900), (900, 60, 0, 50, 60), (900, 60, 20, 30, 40), (900, 60, 70, 0, 0)],
    ids=["first", "later", "after preparation", "too late"],
)
async def test_model_gets_the_remaining_time_by_no_wall_clock(
    monkeypatch: pytest.MonkeyPatch, run_s: float, remaining_s: float | None, waited_s: float, least: int, most: int
) -> None:
    scene = AttemptScene()
    scene.timeouts = Timeouts(1, 1, run_s)
    attempt = scene.attempt(remaining_s)
    attempt._leased_at -= waited_s
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + 300)
    await attempt.run()
    assert least <= (scene.model.jobs[0].remaining_s or 0) <= most
    assert scene.store.limits_s == {run_s}


@pytest.mark.parametrize(
    ("notes", "warnings", "details"),
    [((), (), None), (("no cats",), ("too dark",), {"warnings": ["no cats", "too dark"]})],
)
async def test_warnings_of_submission_and_model_are_published(
    notes: tuple[str, ...], warnings: tuple[str, ...], details: dict[str, Any] | None
) -> None:
    scene = AttemptScene()
    scene.model.warnings = warnings
    await scene.attempt(warnings=notes).run()
    assert scene.store.outcome.get("details") == details


async def test_replica_reports_are_summed() -> None:
    scene = AttemptScene()
    scene.model.events = [Alive(), Alive({"steps": 4}, {"device": "cpu"}), Alive({"steps": 1}, {"device": "cpu"})]
    await scene.attempt().run()
    assert scene.context is not None
    assert (scene.context.reports._counts, scene.context.reports._setup) == ({"steps": 5}, {"device": "cpu"})


async def test_clock_set_back_during_the_run_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, true_time, started_at = AttemptScene(), time.time, time.monotonic()
    scene.model.before_last.clear()
    run = asyncio.create_task(scene.attempt().run())
    while not scene.store.previews:
        await asyncio.sleep(0)
    monkeypatch.setattr(time, "time", lambda: true_time() - 300)
    scene.model.before_last.set()
    await run
    result = scene.store.outcome["result"]
    assert 0 <= result.duration <= round(time.monotonic() - started_at, 3)
    assert abs(result.end_time - result.start_time - result.duration) < 0.01


async def test_refused_result_leaves_no_file() -> None:
    scene = AttemptScene()
    scene.store.accepts = False
    await scene.objects.put("results/other/image.png", b"x", "image/png")
    assert await scene.attempt().run() is AttemptOutcome.LEASE_LOST
    assert await scene.objects.keys("") == ["results/other/image.png"]


async def test_result_is_published_where_the_model_stored_it() -> None:
    scene = AttemptScene({})
    await scene.attempt().run()
    assert scene.store.status is Status.READY
    result = scene.store.outcome["result"]
    assert (result.key, result.thumbnail) == ("results/t/1/image.png", "results/t/1/thumbnail.jpeg")
    assert result.files == ("image.png", "thumbnail.jpeg", "preview-1.jpeg")


@pytest.mark.parametrize("subject", ["two knights", "0.png", "c.png", "i.png", "1.mp4"])
async def test_moderated_request_never_reaches_the_model(subject: str) -> None:
    scene = AttemptScene({subject: 0.9})
    await scene.attempt(control="inputs/t/c.png", image_prompt="inputs/t/i.png", **VIDEO).run()
    assert scene.model.jobs == []
    assert scene.store.status is Status.REQUEST_MODERATED
    assert scene.store.outcome == {"details": {MODERATION_REASONS: ["violence"]}}


async def test_result_that_the_model_withholds_is_moderated() -> None:
    scene = AttemptScene({})
    scene.model.last = Failed("withheld", moderated=True)
    await scene.attempt().run()
    assert scene.store.status is Status.CONTENT_MODERATED
    assert scene.store.outcome == {"details": {MODERATION_REASONS: [SAFETY_CHECKER]}}


async def test_moderated_result_is_deleted_before_its_task_ends() -> None:
    scene = AttemptScene({"thumbnail.jpeg": 0.9})
    await scene.attempt().run()
    assert scene.store.status is Status.CONTENT_MODERATED
    assert scene.store.outcome == {"details": {MODERATION_REASONS: ["violence"]}}
    assert scene.store.files_at_end == []


@pytest.mark.parametrize(
    ("score", "fails", "previews"),
    [(0.0, False, ["results/t/1/preview-1.jpeg"]), (0.9, False, []), (0.0, True, [])],
    ids=["passes", "refused", "not moderated"],
)
async def test_preview_is_shown_only_if_it_passes(score: float, fails: bool, previews: list[str]) -> None:
    scene = AttemptScene({"preview-1.jpeg": score}, fails=lambda key: fails and key.endswith("preview-1.jpeg"))
    scene.model.before_last.clear()
    run = asyncio.create_task(scene.attempt().run())
    while "results/t/1/preview-1.jpeg" not in scene.classifiers.subjects:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    scene.model.before_last.set()
    await run
    assert (scene.store.previews, scene.store.status) == (previews, Status.READY)


class SlowFor:
    """Classifiers that never answer about one subject."""

    def __init__(self, subject: str) -> None:
        self.asked = asyncio.Event()
        self._subject = subject

    async def moderate_text(self, text: str) -> Scores:
        return {}

    async def moderate_object(self, key: str) -> Scores:
        if key.endswith(self._subject):
            self.asked.set()
            await asyncio.Future()
        return {}


async def test_slow_preview_moderation_delays_no_result() -> None:
    scene, classifiers = AttemptScene(), SlowFor("preview-1.jpeg")
    scene.gate = Gate(classifiers, THRESHOLDS)
    async with asyncio.timeout(5):
        await scene.attempt().run()
    assert (scene.store.previews, scene.store.status) == ([], Status.READY)
    assert not scene.gate.calls.is_full


async def test_stop_during_result_moderation_frees_slot_and_files() -> None:
    scene, classifiers = AttemptScene(), SlowFor("thumbnail.jpeg")
    scene.gate = Gate(classifiers, THRESHOLDS)
    attempt = scene.attempt(**VIDEO)
    run = asyncio.create_task(attempt.run())
    async with asyncio.timeout(5):
        await classifiers.asked.wait()
        attempt.stop(task_ended=True)
        assert await run is AttemptOutcome.LEASE_LOST
    assert (attempt.phase, scene.store.status, scene.store.releases) == (Phase.OVER, None, [])
    assert not scene.limiter._running
    assert await scene.objects.keys("") == []


async def test_attempt_stopped_before_it_runs_does_nothing() -> None:
    scene = AttemptScene({})
    attempt = scene.attempt()
    attempt.stop()
    assert await attempt.run() is AttemptOutcome.LEASE_LOST
    assert (scene.classifiers.subjects, scene.model.jobs) == ([], [])


@pytest.mark.parametrize(
    ("level", "ceilings", "status"),
    [(1, {}, Status.REQUEST_MODERATED), (2, {}, Status.READY), (5, {"violence": 0}, Status.REQUEST_MODERATED)],
)
async def test_tolerance_and_ceilings_decide_what_passes(level: int, ceilings: dict[str, int], status: Status) -> None:
    scene = AttemptScene({"two knights": 0.5})
    await scene.attempt(safety=Tolerance(level, ceilings)).run()
    assert scene.store.status is status


@pytest.mark.parametrize("subject", ["two knights", "0.png", "thumbnail.jpeg"])
async def test_task_that_can_not_be_moderated_ends_as_error(subject: str) -> None:
    scene = AttemptScene({}, fails=lambda name: name.endswith(subject))
    await scene.attempt().run()
    assert scene.store.status is Status.ERROR
    assert "could not be checked" in scene.store.outcome["details"]["error"]
    assert "result" not in scene.store.outcome


@pytest.mark.parametrize(
    ("answer", "used"), [("two knights at tea", "two knights at tea"), ("a battle", "two knights")]
)
async def test_rewritten_prompt_is_used_if_it_passes(answer: str, used: str) -> None:
    async def rewrite(prompt: str, seed: int) -> str:
        return answer

    scene = AttemptScene({"a battle": 0.9})
    scene.rewriter = fake_rewriter(edits=rewrite)
    await scene.attempt(rewrite=True).run()
    assert (scene.model.jobs[0].request.prompt, scene.store.status) == (used, Status.READY)


async def test_draining_dispatcher_gives_back_a_task_that_waits_for_moderation() -> None:
    scene = AttemptScene({}, fails=lambda subject: True)
    scene.gate = Gate(scene.classifiers, THRESHOLDS, wait_s=60)
    scene.limiter.close()
    assert await scene.attempt().run() is AttemptOutcome.RELEASED
    assert scene.store.status is None


@pytest.mark.parametrize(
    ("scores", "last", "status"),
    [
        ({}, None, Status.READY),
        ({}, Failed("it can't be done"), Status.ERROR),
        ({"two knights": 0.9}, None, Status.REQUEST_MODERATED),
        ({"thumbnail.jpeg": 0.9}, None, Status.CONTENT_MODERATED),
    ],
)
async def test_ended_video_deletes_its_checkpoint(
    scores: dict[str, float], last: Failed | None, status: Status
) -> None:
    scene = AttemptScene(scores)
    scene.model.last = last
    await scene.objects.put("checkpoints/t.safetensors", b"of an earlier attempt", "application/octet-stream")
    await scene.objects.put("checkpoints/other.safetensors", b"x", "application/octet-stream")
    await scene.attempt(**VIDEO).run()
    assert scene.store.status is status
    assert await scene.objects.keys("checkpoints") == ["checkpoints/other.safetensors"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_interrupted_video_keeps_its_checkpoint_unless_its_task_ended(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    scene = AttemptScene({})
    scene.model.last = Interrupted("out of reach", blame=False, counts=False)
    attempt = scene.attempt(**VIDEO)
    scene.model.before_last.clear()
    run = asyncio.create_task(attempt.run())
    while not await scene.objects.keys("checkpoints"):
        await asyncio.sleep(0)
    if cancelled:
        attempt.stop(task_ended=True)
    scene.model.before_last.set()
    assert await run is (AttemptOutcome.LEASE_LOST if cancelled else AttemptOutcome.RELEASED)
    assert scene.store.status is None
    assert await scene.objects.keys("checkpoints") == ([] if cancelled else ["checkpoints/t.safetensors"])


@pytest.mark.parametrize("starts", [True, False], ids=["crashed", "not started"])
async def test_next_attempt_makes_the_same_image_without_moderating_again(
    monkeypatch: pytest.MonkeyPatch, starts: bool
) -> None:
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    answers = iter(["two knights at tea", "two knights at war"])

    async def rewrite(prompt: str, seed: int) -> str:
        return next(answers)

    async def choose_ratio(prompt: str, seed: int) -> str:
        return "3:2" if prompt == "two knights at tea" else "1:1"

    scene = AttemptScene({})
    scene.rewriter = fake_rewriter(rewrite, ratios=choose_ratio)
    open_request: dict[str, Any] = {"references": (), "rewrite": True, "open_ratio": True, "area": 1024**2}
    if starts:
        scene.model.last = ActorUnavailableError("gone", None)
    else:
        scene.model.first = RequestCancelledError("t")
    await scene.attempt(**open_request).run()
    subjects, scene.model.last, scene.model.first = list(scene.classifiers.subjects), None, None
    assert await scene.attempt(number=2).run() is AttemptOutcome.PUBLISHED
    first, second = scene.model.jobs
    assert first.request == second.request
    assert (second.request.prompt, second.request.width > second.request.height) == ("two knights at tea", True)
    assert not [subject for subject in scene.classifiers.subjects[len(subjects) :] if "knights" in subject]
