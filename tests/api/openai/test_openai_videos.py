"""`/v1/videos`: videos of OpenAI's clients."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest
from support.http_client import Client
from support.http_service import Service
from support.images import image_file, to_base64
from support.openai_client import PATIENCE_S, error
from support.worker import Worker

from serve_app.tasks.task import Status

VIDEOS = "/v1/videos"
IMAGE = image_file(96, 64)
VIDEO = b"\0\0\0\x18ftypmp42 and so on"


def create(client: Client, **body: Any) -> httpx2.Response:
    return client.post(VIDEOS, json={"prompt": "waves", **body})


def create_video(client: Client, **body: Any) -> str:
    response = create(client, **body)
    assert response.status_code == 200, response.text
    return response.json()["id"]


def test_new_video_is_queued(client: Client) -> None:
    response = create(client, seconds="8", size="1280x704")
    assert "ratelimit" in response.headers
    video = response.json()
    assert video.pop("created_at") == pytest.approx(time.time(), abs=PATIENCE_S)
    assert video == {
        "id": video["id"],
        "object": "video",
        "model": "gen-3-video",
        "status": "queued",
        "progress": 0,
        "completed_at": None,
        "expires_at": None,
        "prompt": "waves",
        "seconds": "8",
        "size": "1280x704",
        "error": None,
    }
    assert client.poll(video["id"]).json()["status"] == "Pending"


def test_video_shows_progress_and_serves_its_file(client: Client, worker: Worker, service: Service) -> None:
    task_id = create_video(client)
    worker.advance(task_id, Status.GENERATING, progress=0.5)
    video = client.get(f"{VIDEOS}/{task_id}").json()
    assert (video["status"], video["progress"], video["completed_at"]) == ("in_progress", 50, None)
    assert error(client.get(f"{VIDEOS}/{task_id}/content"), 400)["code"] == "video_not_ready"
    worker.deliver_video(task_id, VIDEO)
    video = client.get(f"{VIDEOS}/{task_id}").json()
    assert (video["status"], video["progress"]) == ("completed", 100)
    retention_s = service.settings.tasks.limits().retention_s
    assert video["expires_at"] - video["completed_at"] == pytest.approx(retention_s, abs=1)
    response = client.get(f"{VIDEOS}/{task_id}/content", params={"variant": "video"})
    assert response.status_code == 302
    file = httpx2.get(response.headers["location"], trust_env=False, timeout=60)
    assert (file.status_code, file.headers["content-type"], file.content) == (200, "video/mp4", VIDEO)


@pytest.mark.parametrize(
    ("status", "details", "problem"),
    [
        (Status.ERROR, {"error": "out of film"}, {"code": "generation_failed", "message": "out of film"}),
        (
            Status.REQUEST_MODERATED,
            {"Moderation Reasons": ["violence"]},
            {"code": "moderation_blocked", "message": "The request was moderated: violence"},
        ),
    ],
)
def test_failed_video_shows_its_error(
    client: Client, worker: Worker, status: Status, details: dict[str, Any], problem: dict[str, str]
) -> None:
    task_id = create_video(client)
    worker.end(task_id, status, details=details)
    video = client.get(f"{VIDEOS}/{task_id}").json()
    assert (video["status"], video["error"]) == ("failed", problem)
    body = error(client.get(f"{VIDEOS}/{task_id}/content"), 400)
    assert (body["code"], problem["message"] in body["message"]) == ("video_not_ready", True)


def test_unset_fields_of_a_video_are_ignored(client: Client) -> None:
    unset = dict.fromkeys(("model", "size", "user", "input_reference"), "") | {"seconds": "0", "prompt": "waves"}
    response = client.post(VIDEOS, files={name: (None, value) for name, value in unset.items()})
    assert (response.status_code, response.json().get("seconds")) == (200, "5")


def test_fields_come_as_json_or_in_a_form(client: Client, worker: Worker) -> None:
    job = worker.job(create_video(client, seconds=6, size="720x1280", seed=7, generate_audio=False, model="3-video"))
    assert (job["width"], job["height"], job["seed"]) == (704, 1280, 7)
    assert (job["video"].seconds, job["video"].audio) == (6, False)
    fields = {"prompt": "7", "seconds": "6", "size": "1920x1080", "seed": "7", "generate_audio": "false"}
    response = client.post(VIDEOS, files={name: (None, value) for name, value in fields.items()})
    assert response.status_code == 200, response.text
    assert response.json()["size"] == "1920x1088", "the size of the video"
    job = worker.job(response.json()["id"])
    assert (job["prompt"], job["seed"], job["video"].audio) == ("7", 7, False)
    assert create(client, size="auto").json()["size"] == "auto"


def test_video_takes_a_first_image(client: Client, worker: Worker) -> None:
    address = "data:image/png;base64," + to_base64(IMAGE)
    ways: list[dict[str, Any]] = [
        {"data": {"prompt": "waves"}, "files": {"input_reference": ("first.png", IMAGE, "image/png")}},
        {"data": {"prompt": "waves", "input_reference[image_url]": address}, "files": {"seed": (None, "7")}},
        {"json": {"prompt": "waves", "input_reference": {"image_url": address}}},
    ]
    for options in ways:
        response = client.post(VIDEOS, **options)
        assert response.status_code == 200, response.text
        assert len(worker.job(response.json()["id"])["references"]) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"seconds": "4"}, "seconds"),
        ({"seconds": 6.5}, "seconds"),
        ({"size": "1024x1792"}, "size"),
        ({"size": "1280x720", "resolution": "fhd"}, "resolution"),
        ({"model": "gen-3-image-klein"}, "model"),
        ({"num_frames": 81}, "num_frames"),
        ({"input_reference": {"file_id": "file-1"}}, "input_reference"),
        ({"input_reference": "x"}, "input_reference"),
    ],
)
def test_invalid_field_of_a_video_is_named(client: Client, service: Service, body: dict[str, Any], param: str) -> None:
    with service.assert_unchanged():
        assert error(create(client, **body), 400)["param"] == param
    files = {"video": ("a.mp4", VIDEO)}
    assert error(client.post(VIDEOS, data={"prompt": "x"}, files=files), 400)["param"] == "video"


def test_idempotency_key_makes_one_video(client: Client) -> None:
    headers = {"Idempotency-Key": "once"}
    first, second = (client.post(VIDEOS, json={"prompt": "waves"}, headers=headers).json() for _ in range(2))
    assert first == second


def list_videos(client: Client, **query: Any) -> dict[str, Any]:
    response = client.get(VIDEOS, params=query)
    assert response.status_code == 200, response.text
    page = response.json()
    assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
    return page


@pytest.mark.parametrize("limit", [2, 4])
def test_pages_have_every_video_once(client: Client, limit: int) -> None:
    videos = {create_video(client) for _ in range(4)}
    client.create_task()  # an image is no video
    page = list_videos(client, limit=limit, order="desc")
    ids = [video["id"] for video in page["data"]]
    while page["has_more"]:
        page = list_videos(client, limit=limit, after=page["last_id"])
        ids += [video["id"] for video in page["data"]]
    assert (len(ids), set(ids)) == (4, videos)


def test_deleted_video_is_cancelled(client: Client, worker: Worker) -> None:
    task_id = create_video(client)
    response = client.delete(f"{VIDEOS}/{task_id}")
    assert response.json() == {"id": task_id, "object": "video.deleted", "deleted": True}
    assert client.get(f"{VIDEOS}/{task_id}").json()["status"] == "failed"
    ended = create_video(client)
    worker.deliver_video(ended, VIDEO)
    error(client.delete(f"{VIDEOS}/{ended}"), 409)


def test_other_tasks_are_no_videos(client: Client, other_client: Client) -> None:
    for task_id in ("none", client.create_task(), create_video(other_client)):
        for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            body = error(client.request(method, f"{VIDEOS}/{task_id}{path}"), 404)
            assert body["message"] == "Video not found"
