"""Requests for videos, and small videos for them."""

from __future__ import annotations

from functools import cache
from typing import Any

from support.http_client import Client, problems
from support.http_service import Service
from support.images import image_file, to_base64
from support.video_encoding import make_video

VIDEO = "gen-3-video"
IMAGE = to_base64(image_file(96, 64))
FILE = b"\0\0\0\x18ftypmp42 and so on"


@cache
def video_file(width: int = 128, height: int = 96, seconds: float = 0.5) -> bytes:
    return make_video(f"testsrc=size={width}x{height}:rate=24:duration={seconds}")


def minimal(mode: str) -> dict[str, Any]:
    """Returns the minimal body of a mode; that of draft_enhance lacks the draft."""
    own: dict[str, dict[str, Any]] = {
        "t2v": {"prompt": "waves"},
        "i2v": {"prompt": "waves", "keyframes": [IMAGE]},
        "v2v": {"prompt": "waves", "start_video": to_base64(video_file())},
        "draft_enhance": {},
    }
    return {"mode": mode, **own[mode]}


def create_draft(client: Client, service: Service, latents: bytes = b"latents", **body: Any) -> str:
    """Returns the id of a ready draft."""
    task_id = client.order_task(VIDEO, **minimal("t2v") | {"draft": True} | body)
    service.worker.deliver_video(task_id, FILE, latents)
    return task_id


def problem(client: Client, service: Service, **body: Any) -> tuple[list[str], str, str]:
    """Returns location below the body, type and message of the only problem of a request that changes nothing."""
    with service.assert_unchanged():
        response = client.order(VIDEO, **body)
    [(loc, kind)] = problems(response)
    assert loc[0] == "body"
    (entry,) = response.json()["detail"]
    return loc[1:], kind, entry["msg"]
