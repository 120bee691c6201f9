"""Tool endpoints, and the modes of the video endpoint."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest
from sent_images import open_image, photo
from server_under_test import OUTPAINTING, VIDEO, Json, ServerUnderTest, is_number, problems
from support.promises import promise

needs = pytest.mark.needs
_tools = partial(promise, "11. Tool endpoints")
_video = partial(promise, "10. gen-3-video")
_decided = partial(promise, "Decided: video")
_I2V: Final[Json] = {"mode": "i2v", "prompt": "waves", "duration": 5}
_V2V: Final[Json] = {"mode": "v2v", "prompt": "waves"}


@_tools("Extends an image beyond its borders; no prompt; direct `width` / `height`")
@_tools("`mode` parameter with values `fast` and `high` (default `high`)")
@_tools("up to 4 MP output; both modes share request fields and response format")
@promise("Limits", "Tool input size: 4 MP (deblur, vto-v2); 2 MP (vto-v1); 4 MP output (outpainting): tool endpoints")
@promise("Decided: tools", "`auto_crop` false (an overflow is then a 422)")
def test_outpainting_limits_the_area_and_the_offset(server: ServerUnderTest) -> None:
    server.expect_rejected(OUTPAINTING, prompt="a field")
    for mode in ("fast", "high"):
        server.expect_accepted(OUTPAINTING, mode=mode, width=2048, height=2048)
    server.expect_rejected(OUTPAINTING, width=2064, height=2048)
    server.expect_rejected(OUTPAINTING, "reference_offset_x", "width", "input_image", reference_offset_x=-8)


@needs("results")
@_tools("result follows the model image's resolution")
def test_try_on_keeps_the_persons_size(server: ServerUnderTest) -> None:
    assert open_image(server.download(server.run_task("gen-tools/vto-v2", person=photo(128, 160)))).size == (128, 160)


@needs("results")
@_tools("Sharpens one image, no prompt, no mask; input up to 4 MP as base64 or image URL")
def test_deblurring_keeps_the_size(server: ServerUnderTest) -> None:
    assert open_image(server.download(server.run_task("gen-tools/deblur-v1"))).size == (96, 64)


# Video


def _get_error_fields(server: ServerUnderTest, **body: Any) -> set[str]:
    """Returns the last part of each location in a request's 422."""
    return {entry["loc"][-1] for entry in problems(server.submit(VIDEO, body))}


@_video(
    "Modes on this one endpoint: `t2v` (text to video), `i2v` (image to video with 1 to 10 pinned keyframes), `v2v` "
    "(video continuation), `draft_enhance`"
)
@_decided("422 reports the chosen mode's problems only.")
@pytest.mark.parametrize(
    ("mode", "missing"),
    [
        ("t2v", {"prompt"}),
        ("i2v", {"prompt", "keyframes"}),
        ("v2v", {"prompt", "start_video"}),
        ("draft_enhance", {"draft_cache"}),
    ],
)
def test_each_video_mode_needs_its_fields(server: ServerUnderTest, mode: str, missing: set[str]) -> None:
    assert _get_error_fields(server, mode=mode) == missing
    assert _get_error_fields(server, mode=mode, unknown=7, safety_tolerance=9) >= missing | {"unknown"}


@_video("Video continuation (`v2v`) is limited to 15 seconds; the other modes to 20 seconds.")
def test_video_duration_is_limited(server: ServerUnderTest) -> None:
    assert "duration" in _get_error_fields(server, **_V2V, start_video="x", duration=16)
    assert "duration" in _get_error_fields(server, mode="t2v", prompt="waves", duration=21)
    assert "duration" in _get_error_fields(server, **_I2V | {"keyframes": [photo()], "duration": 21})
    server.expect_accepted(VIDEO, duration=20)


@_decided("A union discriminated by `mode`, strict.")
def test_video_rejects_unknown_fields(server: ServerUnderTest) -> None:
    assert _get_error_fields(server, prompt="waves") == {"mode"}
    assert _get_error_fields(server, mode="t3v", prompt="waves") == {"mode"}
    assert _get_error_fields(server, mode="t2v", prompt="waves", keyframes=[photo()]) == {"keyframes"}


@promise("Limits", "Video keyframes: 1 to 10: `i2v`")
@_decided(
    "`keyframes`: req: 1 to 10 images (string or array of strings), or `[seconds, image]` pairs in time order; no "
    "mixing."
)
def test_keyframes_are_images_or_timed_pairs(server: ServerUnderTest) -> None:
    for keyframes in (photo(), [photo()] * 10, [[0, photo()], [3, photo()]]):
        server.expect_accepted(VIDEO, **_I2V | {"keyframes": keyframes, "draft": False})
    for wrong in ([], [photo()] * 11, [[3, photo()], [1, photo()]], [photo(), [3, photo()]]):
        server.expect_rejected(VIDEO, "keyframes", **_I2V | {"keyframes": wrong, "draft": False})


@_decided("`start_video`: req: URL or base64 mp4, at most 50 MB")
@_decided("`draft_cache`: req: the draft's URL or task id")
def test_start_video_and_draft_must_be_valid(server: ServerUnderTest) -> None:
    assert "start_video" in _get_error_fields(server, **_V2V, start_video=photo())
    assert "draft_cache" in _get_error_fields(server, mode="draft_enhance", draft_cache="no-such-draft")


@needs("video", "results")
@_video("The final polling response carries `cost`, the settled cost in credits.")
@promise("Decided: submission", '`null` on those marked "`id`, `polling_url` only" and on video.')
@_decided("Output: exactly 24 x duration frames, mp4")
@promise("Decided: polling", "Video drafts add `draft_cache` (URL)")
@_decided("keeps seed, prompt plan and latents for `draft_enhance`")
def test_draft_can_be_enhanced(server: ServerUnderTest) -> None:
    reply = server.create_task(VIDEO)
    assert reply["cost"] is reply["output_mp"] is None
    task = server.wait_for_end(reply["id"])
    assert is_number(task["cost"])
    response = server.get(task["result"]["sample"], key="")
    assert response.headers["content-type"] == "video/mp4"
    assert response.content[4:8] == b"ftyp"
    assert 0 < response.content.find(b"moov") < response.content.find(b"mdat"), "+faststart"
    for draft in (task["id"], task["result"]["draft_cache"]):
        body = {"mode": "draft_enhance", "draft_cache": draft}
        priced = server.post("/v1/pricing", {"path": f"/v1/{VIDEO}", "body": body})
        assert is_number(priced.json()["cost"])
