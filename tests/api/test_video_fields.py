"""The fields of a request for a video, as a client meets their limits."""

from __future__ import annotations

from typing import Any

import pytest
from support.client import Client, problems
from support.http_service import Service
from support.pictures import encoded, picture
from support.promises import promise
from support.website import Website
from video_requests import MODES, PICTURE, VIDEO, clip, minimal, problem


@promise("Decided: video", "A union discriminated by `mode`, strict.")
@pytest.mark.parametrize(
    ("body", "kind"),
    [({}, "missing"), ({"prompt": "x"}, "missing"), ({"mode": None}, "missing"), ({"mode": "video"}, "literal_error")],
)
def test_a_mode_is_needed(client: Client, service: Service, body: dict[str, Any], kind: str) -> None:
    loc, found, message = problem(client, service, **body)
    assert (loc, found) == (["mode"], kind)
    assert all(mode in message for mode in MODES)


@pytest.mark.parametrize(
    ("keyframes", "loc"),
    [
        ("AAAA", ["keyframes"]),
        ([PICTURE, "AAAA"], ["keyframes", "1"]),
        ([[0, PICTURE], [1, "AAAA"]], ["keyframes", "1", "1"]),
        ([encoded(picture(5, 5000, mode="L"))], ["keyframes", "0"]),
    ],
)
def test_a_keyframe_that_is_no_picture(client: Client, service: Service, keyframes: Any, loc: list[str]) -> None:
    found, kind, _ = problem(client, service, mode="i2v", prompt="x", keyframes=keyframes)
    assert (found, kind) == (loc, "image_invalid")


@pytest.mark.parametrize("video", ["AAAA", "not base64!", PICTURE, encoded(clip()[:-200])], ids=lambda text: text[:8])
def test_a_start_that_is_no_video(client: Client, service: Service, video: str) -> None:
    loc, kind, _ = problem(client, service, mode="v2v", prompt="x", start_video=video)
    assert (loc, kind) == (["start_video"], "video_invalid")


def test_a_start_that_leads_inside(client: Client, service: Service, web: Website) -> None:
    for url in ("http://127.0.0.1/start.mp4", web.url("/nowhere.mp4")):
        loc, kind, _ = problem(client, service, mode="v2v", prompt="x", start_video=url)
        assert (loc, kind) == (["start_video"], "video_invalid")


@promise("Decided: video", "0 to 4, default 2")
def test_the_default_tolerance_is_two(client: Client, service: Service) -> None:
    assert service.worker.job(client.ordered(VIDEO, **minimal("t2v")))["safety_tolerance"] == 2
    job = service.worker.job(client.ordered(VIDEO, **minimal("t2v"), safety_tolerance=4))
    assert job["safety_tolerance"] == 4


def test_a_price_is_refused_where_a_submission_is(client: Client, service: Service) -> None:
    bodies: list[dict[str, Any]] = [
        {},
        {"mode": "t2v"},
        {"mode": "i2v", "prompt": "x", "keyframes": ["AAAA"]},
        {"mode": "v2v", "prompt": "x", "start_video": "AAAA"},
        {"mode": "draft_enhance", "draft_cache": "x"},
    ]
    for body in bodies:
        with service.unchanged():
            priced = problems(client.post("/v1/pricing", json={"path": f"/v1/{VIDEO}", "body": body}))
        assert priced == [(["body", *loc], kind) for loc, kind in problems(client.order(VIDEO, **body))]


@promise("10. gen-3-video", "Video continuation (`v2v`) is limited to 15 seconds; the other modes to 20 seconds.")
def test_the_description_tells_which_videos_are_taken(client: Client) -> None:
    fields = client.get("/openapi.json").json()["components"]["schemas"]["VideoToVideoRequest"]["properties"]
    described = fields["start_video"]["description"]
    for limit in ("mp4", "H.264", "50 MB", "1/24 to 20 seconds", "64 to 4096 pixels"):
        assert limit in described
    assert fields["duration"]["anyOf"][0]["anyOf"][0]["maximum"] == 15
