"""Ratios that the prompt decides, and results of resolved requests."""

from __future__ import annotations

from typing import Any

import pytest
from support.payloads import DEFAULTS, new_payload

from deployments.contract.job import Output
from deployments.contract.request import ResolvedRequest
from serve_app.dispatcher.attempt import build_result, close_ratio
from serve_app.inputs.geometry import TIERS, billed_megapixels
from serve_app.schemas.video import FORMS
from serve_app.tasks.result import DraftResult, GenerationResult


def video_request(**body: Any) -> ResolvedRequest:
    form = FORMS["t2v"].model_validate({"mode": "t2v", "prompt": "a wave", "seed": 3, **body})
    return close_ratio(form.resolve(DEFAULTS, []))


@pytest.mark.parametrize(
    ("prompt", "body", "size"),
    [
        ("a wave", {}, (1280, 704)),
        ("a wave, 3:2", {}, (1088, 832)),
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
