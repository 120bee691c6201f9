"""From a task's job to what the model gets, and from its output to a result."""

from __future__ import annotations

from typing import Any

import pytest
from support.job_records import new_job

from deployments.contract.job import GenerationJob, Output, VideoParams
from serve_app.dispatcher.generation import build_result, checkpoint_key, generation_job
from serve_app.inputs.geometry import TIERS, billed_megapixels
from serve_app.schemas.plan import VideoPlan
from serve_app.schemas.video import FORMS
from serve_app.tasks.task import Job, Lease

LEASE = Lease("t", 2, exclusive=True, created=0.0, job="")


def _job(mode: str, body: dict[str, Any], sizes: list[tuple[int, int]], **inputs: Any) -> GenerationJob:
    """As it comes from the task store."""
    plan = FORMS[mode].model_validate({"mode": mode, "prompt": "a wave", "seed": 3, **body}).plan(sizes)
    planned = {name: getattr(plan, name) for name in ("prompt", "seed", "output_format", "area", "width", "height")}
    assert plan.video is not None
    job = new_job(**planned, video=plan.video, **inputs)
    return generation_job(Job.decode(job.encode()), LEASE, job.prompt)


def test_a_video_from_text() -> None:
    job = _job("t2v", {"duration": 6, "generate_audio": False}, [])
    assert job.video == VideoParams(frames=144, checkpoint="checkpoints/t.safetensors", audio=False)
    assert (job.output_format, job.output_prefix, job.seed, job.exclusive) == ("mp4", "results/t/2", 3, True)
    assert (job.width, job.height) == (1280, 704)


def test_a_video_from_images_and_one_that_goes_on() -> None:
    body = {"keyframes": [[0, "a"], [2.5, "b"]]}
    job = _job("i2v", body, [(64, 64)] * 2, references=("inputs/t/0.png", "inputs/t/1.png"))
    assert job.video is not None
    assert (job.references, job.video.times) == (("inputs/t/0.png", "inputs/t/1.png"), (0.0, 2.5))
    assert job.video.start is None
    on = _job("v2v", {"start_video": "a", "draft": True}, [(64, 64)], start_video="inputs/t/0.mp4")
    assert on.video is not None
    assert (on.video.start, on.video.draft, on.references) == ("inputs/t/0.mp4", True, ())
    assert (on.width, on.height) == (480, 480)


def test_all_attempts_share_a_checkpoint() -> None:
    job = new_job(output_format="mp4", video=VideoPlan(seconds=5, audio=True))
    jobs = [generation_job(job, Lease("t", n, False, 0.0, ""), "x", "results/") for n in (1, 2)]
    assert len({job.output_prefix for job in jobs}) == 2
    assert {job.video.checkpoint for job in jobs if job.video} == {checkpoint_key("t")}


@pytest.mark.parametrize(
    ("prompt", "body", "size"),
    [
        ("a wave", {}, (1280, 704)),
        ("a wave, 3:2", {}, (1088, 832)),
        ("a wave, ultrawide", {"draft": True, "resolution": "fhd"}, (1088, 480)),
    ],
)
def test_the_prompt_chooses_among_the_ratios_of_videos(
    prompt: str, body: dict[str, Any], size: tuple[int, int]
) -> None:
    job = _job("t2v", {"prompt": prompt, **body}, [])
    assert (job.width, job.height) == size


def test_a_ratio_that_is_chosen_later_keeps_to_the_price() -> None:
    job = new_job(width=None, height=None, area=TIERS["2k"])
    generation = generation_job(job, LEASE, "x", "16:9")
    assert (generation.width, generation.height) == (2720, 1536)
    assert billed_megapixels(generation.width * generation.height) == billed_megapixels(job.area) == 4


def test_the_result_of_a_draft_keeps_what_is_needed_to_go_on() -> None:
    job = _job("t2v", {"draft": True, "generate_audio": False, "aspect_ratio": "16:9", "duration": 7}, [])
    output = Output("results/t/2/video.mp4", "video/mp4", 640, 352, 1, draft="results/t/2/draft.safetensors")
    result = build_result(job, output, 10.0)
    assert (result["key"], result["prompt"], result["seed"], result["duration"]) == (output.key, "a wave", 3, 10.0)
    assert round(result["end_time"] - result["start_time"], 2) == 10.0
    draft = {"key": output.draft, "frames": 168, "width": 640, "height": 352, "audio": False}
    assert result["draft"] == draft
    assert "thumbnail" not in result
    small = Output("k", "image/png", 64, 80, 1, thumbnail="results/t/2/thumbnail.jpeg")
    assert build_result(job, small, 0.0)["thumbnail"] == small.thumbnail
