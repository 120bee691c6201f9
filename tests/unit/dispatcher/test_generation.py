"""From a task's job to what the model gets, and from its output to a result."""

from __future__ import annotations

from typing import Any

import pytest
from support.payloads import DEFAULTS, new_payload

from deployments.contract.job import GenerationJob, InputKeys, Output, checkpoint_key
from deployments.contract.request import VideoParams
from serve_app.dispatcher.generation import build_result, close_ratio, generation_job
from serve_app.inputs.geometry import TIERS, billed_megapixels
from serve_app.schemas.video import FORMS
from serve_app.tasks.payload import TaskPayload
from serve_app.tasks.result import DraftResult, GenerationResult
from serve_app.tasks.task import Lease

LEASE = Lease("t", 2, exclusive=True, created=0.0, job="")


def _job(mode: str, body: dict[str, Any], sizes: list[tuple[int, int]], **inputs: Any) -> GenerationJob:
    """Returns the job as it comes from the task store."""
    request = FORMS[mode].model_validate({"mode": mode, "prompt": "a wave", "seed": 3, **body}).resolve(DEFAULTS, sizes)
    payload = TaskPayload.decode(TaskPayload(request=close_ratio(request), inputs=InputKeys(**inputs)).encode())
    return generation_job(payload, LEASE)


def test_a_video_from_text() -> None:
    job = _job("t2v", {"duration": 6, "generate_audio": False}, [])
    assert job.request.video == VideoParams(frames=144, audio=False)
    assert (job.request.output_format, job.output_prefix, job.request.seed, job.exclusive) == (
        "mp4",
        "results/t/2",
        3,
        True,
    )
    assert (job.request.width, job.request.height) == (1280, 704)


def test_a_video_from_images_and_one_that_goes_on() -> None:
    body = {"keyframes": [[0, "a"], [2.5, "b"]]}
    job = _job("i2v", body, [(64, 64)] * 2, references=("inputs/t/0.png", "inputs/t/1.png"))
    assert job.request.video is not None
    assert (job.inputs.references, job.request.video.times) == (("inputs/t/0.png", "inputs/t/1.png"), (0.0, 2.5))
    assert job.inputs.start_video is None
    on = _job("v2v", {"start_video": "a", "draft": True}, [(64, 64)], start_video="inputs/t/0.mp4")
    assert on.request.video is not None
    assert (on.inputs.start_video, on.request.video.draft, on.inputs.references) == ("inputs/t/0.mp4", True, ())
    assert (on.request.width, on.request.height) == (480, 480)


def test_all_attempts_share_a_checkpoint() -> None:
    payload = new_payload(output_format="mp4", video=VideoParams(frames=120))
    jobs = [generation_job(payload, Lease("t", n, False, 0.0, "")) for n in (1, 2)]
    assert len({job.output_prefix for job in jobs}) == 2
    assert {job.checkpoint for job in jobs if job.request.video} == {checkpoint_key("t")}


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
    assert (job.request.width, job.request.height) == size


def test_a_ratio_that_is_chosen_later_keeps_to_the_price() -> None:
    request = close_ratio(new_payload(open_ratio=True, area=TIERS["2k"]).request, "16:9")
    assert (request.width, request.height, request.open_ratio) == (2720, 1536, False)
    assert billed_megapixels(request.width * request.height) == billed_megapixels(request.area) == 4


def test_the_result_of_a_draft_keeps_what_is_needed_to_go_on() -> None:
    body = {"draft": True, "generate_audio": False, "aspect_ratio": "16:9", "duration": 7}
    request = _job("t2v", body, []).request
    output = Output("results/t/2/video.mp4", "video/mp4", 640, 352, 1, draft="results/t/2/draft.safetensors")
    result = build_result(request, output, 10.0)
    assert (result.key, result.prompt, result.seed, result.duration) == (output.key, "a wave", 3, 10.0)
    assert round(result.end_time - result.start_time, 2) == 10.0
    assert result.draft == DraftResult("results/t/2/draft.safetensors", 168, 640, 352, audio=False)
    assert result.object_keys == output.files
    assert GenerationResult.decode(result.encode()) == result
