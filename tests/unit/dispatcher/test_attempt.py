"""The steps of an attempt: moderation, resolution, results, and the files that they leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.exceptions import ActorUnavailableError
from ray.serve.exceptions import RequestCancelledError
from support.attempts import THRESHOLDS, AttemptScene, FakeClassifiers
from support.dispatchers import fake_rewriter
from support.payloads import DEFAULTS, new_payload

from deployments.contract.events import Alive, Failed, Interrupted
from deployments.contract.job import Output
from deployments.contract.moderation import ClassifierSpec, ModeratorSpec, Scores, Tolerance
from deployments.contract.request import ResolvedRequest, VideoParams
from serve_app.dispatcher import failures
from serve_app.dispatcher.attempt import (
    MODERATION_REASONS,
    SAFETY_CHECKER,
    Attempt,
    AttemptOutcome,
    Phase,
    Timeouts,
    build_result,
    close_ratio,
)
from serve_app.dispatcher.clients import ModerationClient
from serve_app.inputs.geometry import TIERS, billed_megapixels
from serve_app.moderation.gate import Gate
from serve_app.schemas.video import FORMS
from serve_app.tasks.result import DraftResult, GenerationResult
from serve_app.tasks.task import Status

VIDEO: dict[str, Any] = {
    "output_format": "mp4",
    "start_video": "inputs/t/1.mp4",
    "video": VideoParams(frames=120, times=(0.0,), draft=True),
}


@asynccontextmanager
async def paused_run(scene: AttemptScene, attempt: Attempt) -> AsyncIterator[asyncio.Task[AttemptOutcome]]:
    """Runs the attempt up to the last event of its model, and to its end after the block."""
    scene.model.before_last.clear()
    run = asyncio.create_task(attempt.run())
    yield run
    scene.model.before_last.set()
    await run


async def test_every_field_of_the_request_reaches_the_model() -> None:
    scene = AttemptScene()
    numbers: dict[str, Any] = {"guidance": 2.5, "guidance_interval": 2, "canny": (50, 200), "seed": 2**64 - 1}
    request = {**numbers, "transparent": True}
    inputs: dict[str, Any] = {"mask": "m", "control": "c", "image_prompt": "i"}
    assert await scene.attempt(**request, **inputs).run() is AttemptOutcome.PUBLISHED
    [job] = scene.model.jobs
    assert {name: getattr(job.request, name) for name in request} == request
    assert {name: getattr(job.inputs, name) for name in inputs} == inputs


@pytest.mark.parametrize(
    ("remaining_s", "waited_s", "expected_s"),
    [(None, 0, (900, 900)), (60, 0, (50, 60)), (60, 20, (30, 40)), (60, 70, (0, 0))],
    ids=["first", "later", "after preparation", "too late"],
)
async def test_model_gets_the_remaining_time_by_no_wall_clock(
    monkeypatch: pytest.MonkeyPatch, remaining_s: float | None, waited_s: float, expected_s: tuple[float, float]
) -> None:
    scene, true_time = AttemptScene(), time.time
    scene.timeouts = Timeouts(1, 1, run_s=900)
    attempt = scene.attempt(remaining_s)
    attempt._leased_at -= waited_s
    monkeypatch.setattr(time, "time", lambda: true_time() + 300)
    await attempt.run()
    assert expected_s[0] <= (scene.model.jobs[0].remaining_s or 0) <= expected_s[1]
    assert scene.store.limits_s == {900}


@pytest.mark.parametrize("warned", [False, True])
async def test_warnings_of_submission_and_model_are_published(warned: bool) -> None:
    scene = AttemptScene()
    scene.model.warnings = ("too dark",) * warned
    await scene.attempt(warnings=("no cats",) * warned).run()
    assert scene.store.outcome.get("details") == ({"warnings": ["no cats", "too dark"]} if warned else None)


async def test_replica_reports_are_summed() -> None:
    scene = AttemptScene()
    scene.model.events = [Alive(), Alive({"steps": 4}, {"device": "cpu"}), Alive({"steps": 1}, {"device": "cpu"})]
    await scene.attempt().run()
    assert scene.context is not None
    assert (scene.context.reports._counts, scene.context.reports._setup) == ({"steps": 5}, {"device": "cpu"})


async def test_clock_set_back_during_the_run_changes_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, true_time, started_at = AttemptScene(), time.time, time.monotonic()
    async with paused_run(scene, scene.attempt()):
        while not scene.store.previews:
            await asyncio.sleep(0)
        monkeypatch.setattr(time, "time", lambda: true_time() - 300)
    result = scene.store.outcome["result"]
    assert 0 <= result.duration <= round(time.monotonic() - started_at, 3)
    assert abs(result.end_time - result.start_time - result.duration) < 0.01


async def test_result_is_published_where_the_model_stored_it() -> None:
    scene = AttemptScene({})
    await scene.attempt().run()
    assert scene.store.status is Status.READY
    result = scene.store.outcome["result"]
    assert (result.key, result.thumbnail) == ("results/t/1/image.png", "results/t/1/thumbnail.jpeg")
    assert result.files == ("image.png", "thumbnail.jpeg", "preview-1.jpeg")


async def test_result_refused_by_the_store_leaves_no_file() -> None:
    scene = AttemptScene()
    scene.store.accepts = False
    await scene.objects.put("results/other/image.png", b"x", "image/png")
    assert await scene.attempt().run() is AttemptOutcome.LEASE_LOST
    assert await scene.objects.keys("") == ["results/other/image.png"]


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
    ("score", "previews"), [(0.0, ["results/t/1/preview-1.jpeg"]), (0.9, [])], ids=["passes", "refused"]
)
async def test_preview_is_shown_only_if_it_passes(score: float, previews: list[str]) -> None:
    scene = AttemptScene({"preview-1.jpeg": score})
    async with paused_run(scene, scene.attempt()):
        while "results/t/1/preview-1.jpeg" not in scene.classifiers.subjects:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
    assert (scene.store.previews, scene.store.status) == (previews, Status.READY)


class HungClassifiers(FakeClassifiers):
    """Never answers about one subject."""

    def __init__(self, subject: str) -> None:
        super().__init__({})
        self.called = asyncio.Event()
        self._subject = subject

    async def moderate_text(self, text: str) -> Scores:
        if text.endswith(self._subject):
            self.called.set()
            await asyncio.Future()
        return await super().moderate_text(text)


async def test_negative_prompt_is_moderated() -> None:
    scene = AttemptScene({})
    await scene.attempt(prompt="two knights", negative_prompt="swords").run()
    assert "two knights\nswords" in scene.classifiers.subjects


async def test_slow_preview_moderation_delays_no_result() -> None:
    scene, classifiers = AttemptScene(), HungClassifiers("preview-1.jpeg")
    scene.gate = Gate(classifiers, THRESHOLDS)
    async with asyncio.timeout(5):
        await scene.attempt().run()
    assert (scene.store.previews, scene.store.status) == ([], Status.READY)
    assert not scene.gate.calls.is_full


async def test_stop_during_result_moderation_frees_slot_and_files() -> None:
    scene, classifiers = AttemptScene(), HungClassifiers("thumbnail.jpeg")
    scene.gate = Gate(classifiers, THRESHOLDS)
    attempt = scene.attempt(**VIDEO)
    run = asyncio.create_task(attempt.run())
    async with asyncio.timeout(5):
        await classifiers.called.wait()
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
async def test_task_that_can_not_be_moderated_ends_as_an_error(subject: str) -> None:
    scene = AttemptScene({}, fails=lambda name: name.endswith(subject))
    await scene.attempt().run()
    assert scene.store.status is Status.ERROR
    assert "could not be checked" in scene.store.outcome["details"]["error"]
    assert "result" not in scene.store.outcome


@pytest.mark.parametrize(("rewritten", "used"), [("knights at tea", "knights at tea"), ("a battle", "two knights")])
async def test_rewritten_prompt_is_used_if_it_passes(rewritten: str, used: str) -> None:
    async def rewrite(prompt: str, seed: int) -> str:
        return rewritten

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
async def test_ended_video_deletes_its_checkpoint(scores: dict[str, float], last: Any, status: Status) -> None:
    scene = AttemptScene(scores)
    scene.model.last = last
    for name in ("t", "other"):
        await scene.objects.put(f"checkpoints/{name}.safetensors", b"x", "application/octet-stream")
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
    async with paused_run(scene, attempt) as run:
        while not await scene.objects.keys("checkpoints"):
            await asyncio.sleep(0)
        if cancelled:
            attempt.stop(task_ended=True)
    assert run.result() is (AttemptOutcome.LEASE_LOST if cancelled else AttemptOutcome.RELEASED)
    assert scene.store.status is None
    assert await scene.objects.keys("checkpoints") == ([] if cancelled else ["checkpoints/t.safetensors"])


@pytest.mark.parametrize("starts", [True, False], ids=["crashed", "not started"])
async def test_next_attempt_makes_the_same_image_without_moderating_again(
    monkeypatch: pytest.MonkeyPatch, starts: bool
) -> None:
    monkeypatch.setattr(failures, "_PAUSE_S", 0.0)
    prompts = iter(["two knights at tea", "two knights at war"])

    async def rewrite(prompt: str, seed: int) -> str:
        return next(prompts)

    async def choose_ratio(prompt: str, seed: int) -> str:
        return "3:2" if prompt == "two knights at tea" else "1:1"

    scene = AttemptScene({})
    scene.rewriter = fake_rewriter(rewrite, ratios=choose_ratio)
    if starts:
        scene.model.last = ActorUnavailableError("gone", None)
    else:
        scene.model.first = RequestCancelledError("t")
    await scene.attempt(references=(), rewrite=True, open_ratio=True, area=1024**2).run()
    subjects, scene.model.last, scene.model.first = list(scene.classifiers.subjects), None, None
    assert await scene.attempt(number=2).run() is AttemptOutcome.PUBLISHED
    first, second = scene.model.jobs
    assert first.request == second.request
    assert (second.request.prompt, second.request.width > second.request.height) == ("two knights at tea", True)
    assert not [subject for subject in scene.classifiers.subjects[len(subjects) :] if "knights" in subject]


def video_request(**body: Any) -> ResolvedRequest:
    form = FORMS["t2v"].model_validate({"mode": "t2v", "prompt": "a wave", "seed": 3, **body})
    return close_ratio(form.resolve(DEFAULTS, []))


@pytest.mark.parametrize(
    ("prompt", "body", "size"),
    [
        *(("a wave", {}, (1280, 704)), ("a wave, 3:2", {}, (1088, 832))),
        ("a wave, ultrawide", {"draft": True, "resolution": "fhd"}, (1088, 480)),
    ],
)
def test_prompt_chooses_among_ratios_of_videos(prompt: str, body: dict[str, Any], size: tuple[int, int]) -> None:
    request = video_request(prompt=prompt, **body)
    assert (request.width, request.height) == size


def test_chosen_ratio_keeps_the_price() -> None:
    request = close_ratio(new_payload(open_ratio=True, area=TIERS["2k"]).request, "16:9")
    assert (request.width, request.height, request.open_ratio) == (2720, 1536, False)
    assert billed_megapixels(request.width * request.height) == billed_megapixels(request.area) == 4


def test_draft_result_keeps_its_latents_and_sizes() -> None:
    request = video_request(draft=True, generate_audio=False, aspect_ratio="16:9", duration=7)
    output = Output("results/t/2/video.mp4", "video/mp4", 640, 352, 1, draft="results/t/2/draft.safetensors")
    result = build_result(request, output, 10.0)
    assert (result.key, result.prompt, result.seed, result.duration) == (output.key, "a wave", 3, 10.0)
    assert round(result.end_time - result.start_time, 2) == 10.0
    assert result.draft == DraftResult("results/t/2/draft.safetensors", 168, 640, 352, audio=False)
    assert result.object_keys == output.files
    assert GenerationResult.decode(result.encode()) == result


@pytest.mark.parametrize("guarded", [False, True])
async def test_highest_score_of_local_and_remote_classifiers_counts(tmp_path: Path, guarded: bool) -> None:
    async def guard(text: str) -> Scores:
        return {"hate": 0.9}

    handle = SimpleNamespace(moderate_text=SimpleNamespace(remote=guard)) if guarded else None
    text = (ClassifierSpec("lexicon"), *([ClassifierSpec("guard", "any")] if guarded else []))
    spec = ModeratorSpec(text, (ClassifierSpec("skin"),), tmp_path.as_uri())
    client = ModerationClient(spec, cast(Any, handle))
    scores = await client.moderate_text("a very bloody murder scene")
    assert scores["violence"] > 0.6
    assert scores.get("hate", 0) == (0.9 if guarded else 0)
    with pytest.raises(FileNotFoundError):
        await client.moderate_object("results/gone.jpeg")  # only classified in this process
