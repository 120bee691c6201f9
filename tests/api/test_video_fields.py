"""The fields of a request for a video, as a client meets their limits."""

from __future__ import annotations

from typing import Any

import pytest
from support.client import Client, problems
from support.http_service import Service
from support.pictures import encoded, picture
from support.promises import promise
from support.website import Website
from video_requests import MODES, NEW, PICTURE, VIDEO, clip, drafted, minimal, problem


@promise("Decided: video", "A union discriminated by `mode`, strict.")
@pytest.mark.parametrize(
    ("body", "kind"),
    [({}, "missing"), ({"prompt": "x"}, "missing"), ({"mode": None}, "missing"), ({"mode": "video"}, "literal_error")],
)
def test_a_mode_is_needed(client: Client, service: Service, body: dict[str, Any], kind: str) -> None:
    loc, found, message = problem(client, service, **body)
    assert (loc, found) == (["mode"], kind)
    assert all(mode in message for mode in MODES)


@pytest.mark.parametrize("body", ["[]", '"t2v"', "3", "null"])
def test_a_body_that_is_no_object(client: Client, service: Service, body: str) -> None:
    with service.unchanged():
        response = client.post(f"/v1/{VIDEO}", content=body, headers={"content-type": "application/json"})
    [(loc, _)] = problems(response)
    assert loc == ["body"]


@pytest.mark.parametrize(
    ("mode", "body", "loc"),
    [
        ("v2v", {"duration": 16}, ["duration"]),
        ("t2v", {"webhook_url": "http://127.0.0.1/"}, ["webhook_url"]),
        ("i2v", {"keyframes": []}, ["keyframes"]),
        ("i2v", {"keyframes": [PICTURE] * 11}, ["keyframes"]),
        ("i2v", {"keyframes": [PICTURE, [1, PICTURE]]}, ["keyframes"]),
        ("i2v", {"keyframes": [[0, PICTURE], [9, PICTURE]], "duration": 8}, ["keyframes", "1", "0"]),
        ("i2v", {"keyframes": [[0, PICTURE], [1, 3]]}, ["keyframes", "1", "1"]),
    ],
)
def test_where_a_value_is_refused(
    client: Client, service: Service, mode: str, body: dict[str, Any], loc: list[str]
) -> None:
    assert problem(client, service, **minimal(mode) | body)[0] == loc


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


def test_a_price_leaves_nothing_behind(client: Client, service: Service) -> None:
    draft = drafted(client, service)
    for body in (*map(minimal, NEW), {"mode": "draft_enhance", "draft_cache": draft}):
        with service.unchanged():
            assert client.post("/v1/pricing", json={"path": f"/v1/{VIDEO}", "body": body}).status_code == 200


@promise("Decided: errors", "never echo the value of a secret or an image")
def test_no_error_repeats_what_was_sent(client: Client) -> None:
    for mode in NEW:
        response = client.order(VIDEO, **minimal(mode), duration=99, webhook_secret="hunter2-hunter2")
        assert PICTURE[:40] not in response.text
        assert encoded(clip())[:40] not in response.text
        assert "hunter2" not in response.text


@promise("10. gen-3-video", "Video continuation (`v2v`) is limited to 15 seconds; the other modes to 20 seconds.")
def test_the_description_tells_which_videos_are_taken(client: Client) -> None:
    fields = client.get("/openapi.json").json()["components"]["schemas"]["VideoToVideoRequest"]["properties"]
    described = fields["start_video"]["description"]
    for limit in ("mp4", "H.264", "50 MB", "1/24 to 20 seconds", "64 to 4096 pixels"):
        assert limit in described
    assert fields["duration"]["anyOf"][0]["anyOf"][0]["maximum"] == 15
