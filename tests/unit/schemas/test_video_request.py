"""Requests for videos: their four forms, durations, keyframes, sizes and drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from support.payloads import DEFAULTS

from deployments.contract.job import InputKeys
from deployments.contract.request import ResolvedRequest, VideoParams
from serve_app.schemas import REQUESTS
from serve_app.schemas.video import (
    MAX_KEYFRAMES,
    BaseVideoRequest,
    VideoRequest,
    parse_keyframes,
)
from serve_app.submission.input_storage import Draft

MINIMAL: dict[str, dict[str, Any]] = {
    "t2v": {"prompt": "x"},
    "i2v": {"prompt": "x", "keyframes": ["a"]},
    "v2v": {"prompt": "x", "start_video": "a"},
    "draft_enhance": {"draft_cache": "a"},
}
NEW = ["t2v", "i2v", "v2v"]
SIZES = [(640, 480)]
INPUTS = InputKeys(draft="results/t/1/draft.safetensors")
DRAFT = Draft("t", prompt="y", seed=7, seconds=6, width=640, height=352, audio=False, inputs=INPUTS)


def _request(mode: str, **body: Any) -> BaseVideoRequest:
    request = REQUESTS["video"].model_validate({"mode": mode, **MINIMAL[mode], **body})
    assert isinstance(request, BaseVideoRequest)
    return request


def _plan(mode: str, sizes: list[tuple[int, int]] = SIZES, **body: Any) -> ResolvedRequest:
    return _request(mode, **body).resolve(DEFAULTS, sizes)


def _video(mode: str, sizes: list[tuple[int, int]] = SIZES, **body: Any) -> VideoParams:
    video = _plan(mode, sizes, **body).video
    assert video is not None
    return video


def _problems(body: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        VideoRequest.model_validate(body)
    return [(error["loc"], error["type"]) for error in refused.value.errors()]


@pytest.mark.parametrize(("mode", "longest"), [("t2v", 20), ("i2v", 20), ("v2v", 15)])
def test_duration_is_whole_seconds_within_the_limits(mode: str, longest: int) -> None:
    assert [_video(mode, duration=n).seconds for n in (5, 5.0, longest, "auto")] == [5, 5, longest, 5]
    for wrong in (4, longest + 1, 0, -5, 5.5, "5", "AUTO", "", True, [5], float("inf")):
        ((loc, _),) = _problems({"mode": mode, **MINIMAL[mode], "duration": wrong})
        assert loc == ("duration",), wrong


@pytest.mark.parametrize(
    ("keyframes", "expected"),
    [
        ([], [((), "too_short")]),
        (["a"] * (MAX_KEYFRAMES + 1), [((), "too_long")]),
        (None, [((), "keyframes_form")]),
        (["a", ""], [((1,), "string_too_short")]),
        (["a", None, 3], [((1,), "string_type"), ((2,), "string_type")]),
        (["a", [1, "b"]], [((), "keyframes_mixed")]),
        ([[1, "b"], "a"], [((), "keyframes_mixed")]),
        ([[1]], [((0, 1), "missing")]),
        ([[1, "a", 2]], [((0,), "too_long")]),
        ([[True, "a"]], [((0, 0), "float_type")]),
        ([[-0.1, "a"]], [((0, 0), "greater_than_equal")]),
        ([[float("nan"), "a"]], [((0, 0), "finite_number")]),
        ([[0, "a"], [5.1, "b"]], [((1, 0), "keyframe_too_late")]),
        ([[3, "a"], [3, "b"]], [((1, 0), "keyframes_out_of_order")]),
    ],
)
def test_invalid_keyframes_are_refused_at_their_location(keyframes: Any, expected: list[Any]) -> None:
    problems = _problems({"mode": "i2v", "prompt": "x", "keyframes": keyframes, "duration": 5})
    assert problems == [(("keyframes", *loc), kind) for loc, kind in expected]


@pytest.mark.parametrize(
    ("keyframes", "duration", "seconds", "times"),
    [
        (["a"], "auto", 5, (0,)),
        (["a"] * 2, 6, 6, (0, 6)),
        (["a"] * 3, None, 5, (0, 2.5, 5)),
        ([[0, "a"], [5.01, "b"]], "auto", 6, (0, 5.01)),
        ([[7, "a"]], "auto", 7, (7,)),
        ([[0, "a"], [12, "b"]], 12, 12, (0, 12)),
    ],
)
def test_video_reaches_to_its_last_keyframe(
    keyframes: Any, duration: Any, seconds: int, times: tuple[float, ...]
) -> None:
    video = _video("i2v", [(64, 64)] * len(keyframes), keyframes=keyframes, duration=duration)
    assert (video.seconds, video.times) == (seconds, times)


@pytest.mark.parametrize("mode", NEW)
@pytest.mark.parametrize(
    ("body", "size"),
    [
        *(({"aspect_ratio": "16:9"}, (1280, 704)), ({"aspect_ratio": "16:9", "resolution": "fhd"}, (1920, 1088))),
        ({"aspect_ratio": "16:9", "draft": True}, (640, 352)),
        ({"aspect_ratio": "9:16", "resolution": "fhd", "draft": True}, (544, 960)),
    ],
)
def test_size_follows_ratio_resolution_and_draft(mode: str, body: dict[str, Any], size: tuple[int, int]) -> None:
    plan = _plan(mode, **body)
    assert (plan.width, plan.height) == size
    assert plan.area == size[0] * size[1]


@pytest.mark.parametrize("mode", ["i2v", "v2v"])
@pytest.mark.parametrize(
    ("input_size", "size"), [((640, 480), (1088, 832)), ((1080, 1920), (704, 1280)), ((1000, 999), (960, 960))]
)
def test_auto_ratio_follows_the_input(mode: str, input_size: tuple[int, int], size: tuple[int, int]) -> None:
    plan = _plan(mode, [input_size])
    assert (plan.width, plan.height) == size
    assert plan.area == 1280 * 704, "a price must not depend on the ratio"


@pytest.mark.parametrize("body", [{}, {"resolution": "fhd"}, {"draft": True}])
def test_prompt_chooses_the_omitted_ratio(body: dict[str, Any]) -> None:
    plan = _plan("t2v", [], **body)
    assert plan.open_ratio
    assert plan.area == _plan("t2v", aspect_ratio="16:9", **body).area


@pytest.mark.parametrize("mode", NEW)
def test_video_keeps_prompt_seed_audio_and_draft(mode: str) -> None:
    plan = _plan(mode, seed=3, generate_audio=False, draft=True)
    assert (plan.prompt, plan.seed, plan.output_format, plan.steps) == ("x", 3, "mp4", 1)
    assert plan.video is not None
    assert (plan.video.audio, plan.video.draft) == (False, True)
    assert (_video(mode).audio, _video(mode).draft) == (True, False)


def test_draft_gives_all_but_the_resolution() -> None:
    request = _request("draft_enhance")
    plan = request.resolve(DEFAULTS, [], DRAFT)
    assert (plan.prompt, plan.seed, plan.width, plan.height) == ("y", 7, 1920, 1088)
    assert plan.video == VideoParams(frames=144, audio=False)
    pinned = request.resolve(DEFAULTS, [], replace(DRAFT, times=(2.5,)))
    assert pinned.video == VideoParams(frames=144, audio=False, times=(2.5,))


@pytest.mark.parametrize("resolution", ["hd", "fhd"])
@pytest.mark.parametrize("ratio", ["21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"])
@pytest.mark.parametrize("drafted_at", ["hd", "fhd"])
def test_enhanced_draft_has_the_size_of_a_full_video(resolution: str, ratio: str, drafted_at: str) -> None:
    drafted = _plan("t2v", aspect_ratio=ratio, resolution=drafted_at, draft=True)
    draft = replace(DRAFT, width=drafted.width, height=drafted.height)
    enhanced = _request("draft_enhance", resolution=resolution).resolve(DEFAULTS, [], draft)
    full = _plan("t2v", aspect_ratio=ratio, resolution=resolution)
    assert (enhanced.width, enhanced.height, enhanced.area) == (full.width, full.height, full.area)


def test_mode_is_full_draft_or_enhance() -> None:
    for mode in NEW:
        assert (_request(mode).chosen_mode(), _request(mode, draft=True).chosen_mode()) == ("full", "draft")
    assert _request("draft_enhance").chosen_mode() == "enhance"


def test_work_grows_with_seconds_steps_and_area() -> None:
    short, long = (_plan("t2v", duration=n) for n in (5, 10))
    assert short.work == pytest.approx(5 * 1280 * 704 / 2**20)
    assert long.work == pytest.approx(2 * short.work)
    assert _plan("t2v", resolution="fhd").work > 2 * short.work
    assert _plan("t2v", draft=True).work == pytest.approx(short.work / 4)
    assert replace(short, steps=10, input_pixels=2**20).work == pytest.approx(10 * short.work + 10)
    image = REQUESTS["image-klein"].model_validate({"prompt": "x", "steps": 4})
    assert image.resolve(DEFAULTS, []).work == 4


def test_images_stay_out_of_repr() -> None:
    for mode, body in (("i2v", {"keyframes": ["secret"]}), ("v2v", {"start_video": "secret"})):
        assert "secret" not in repr(_request(mode, **body))


def test_keyframes_have_location_and_time() -> None:
    assert parse_keyframes("a") == [((), "a", None)]
    assert parse_keyframes(["a", "b"]) == [(("0",), "a", None), (("1",), "b", None)]
    assert parse_keyframes([(0.0, "a"), (2.5, "b")]) == [(("0", "1"), "a", 0.0), (("1", "1"), "b", 2.5)]
