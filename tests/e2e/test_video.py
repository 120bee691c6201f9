"""Videos of the local profile's model: from keyframes, and through a kill of its replica."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from safetensors import safe_open
from support.images import image_base64
from support.local_service import LocalService
from support.polling import poll_result, wait_for_end
from support.redis_process import until
from support.video_inspection import decode_frames, inspect

from serve_app.cli.service import Client

ENDPOINT = "gen-3-video"
FPS, RATE = 24, 48_000
QUICK: dict[str, Any] = {"draft": True}
"""Options that save three quarters of the pixels."""

Frame = NDArray[np.uint8]


def difference(one: Frame, other: Frame) -> float:
    """Returns the mean difference of the compositions of two frames."""
    small, reference = (cv2.resize(each, (40, 22), interpolation=cv2.INTER_AREA).astype(float) for each in (one, other))
    return float(np.abs(small - reference).mean())


def draw_keyframe(colour: str, left: int = 420) -> tuple[str, Frame]:
    """Returns a keyframe in base64 and as a frame."""
    image = Image.new("RGB", (1280, 704), "navy")
    ImageDraw.Draw(image).ellipse((left, 130, left + 440, 570), fill=colour)
    return image_base64(image), np.asarray(image)


def test_keyframes_make_a_video_with_audio(client: Client) -> None:
    (first, left), (last, right) = (draw_keyframe("orange", x) for x in (60, 780))
    polls: list[dict[str, Any]] = []
    before = client.credits()
    body = {"mode": "i2v", "prompt": "the ball moves to the right", "keyframes": [first, last], **QUICK}
    submitted = client.submit(ENDPOINT, body)
    task = wait_for_end(client, submitted["id"], polls.append)
    assert task["status"] == "Ready", task
    assert (submitted["cost"], submitted["input_mp"], submitted["output_mp"]) == (None, None, None)
    assert before - client.credits() == task["cost"] > 0
    progress = [each["progress"] for each in polls if each["progress"] is not None]
    assert progress == sorted(progress)
    assert any(0 < fraction < 1 for fraction in progress)
    assert any(each["preview"] for each in polls), "no preview before the end"

    data = client.fetch(task["result"]["sample"])
    video = inspect(data)
    assert (video.codec, video.pixel_format, video.fps, video.frames) == ("h264", "yuv420p", FPS, 5 * FPS)
    assert (video.width, video.height, video.faststart) == (640, 352, True)
    assert (video.audio_codec, video.audio_rate, video.audio_channels) == ("aac", RATE, 2)
    assert video.audio_seconds is not None
    assert abs(video.audio_seconds - video.seconds) <= 1 / FPS
    frames = decode_frames(data)
    for frame, expected, other in ((frames[0], left, right), (frames[-1], right, left)):
        assert difference(frame, expected) < difference(frame, other) / 2


@pytest.mark.slow
def test_video_resumes_after_a_kill_and_costs_once(client: Client, service: LocalService) -> None:
    before = client.credits()
    task_id = client.submit(
        ENDPOINT, {"mode": "t2v", "prompt": "a red circle moves to the right", "duration": 10, "seed": 3} | QUICK
    )["id"]
    checkpoint = service.folder / "data" / "objects" / "checkpoints" / f"{task_id}.safetensors"
    until(lambda: read_steps(checkpoint) >= 3)
    reached = poll_result(client, task_id)["progress"]
    service.kill_one("ServeReplica:gen:ltx2")

    progress: list[float] = []
    while (task := poll_result(client, task_id))["status"] not in ("Ready", "Error"):
        progress.append(task["progress"] or 0.0)
        time.sleep(0.05)
    assert task["status"] == "Ready", task
    # A restarted video would show its first steps again; each takes longer than a poll.
    assert min(fraction for fraction in progress if fraction > 0) >= reached > 0
    assert inspect(client.fetch(task["result"]["sample"])).frames == 10 * FPS
    assert before - client.credits() == task["cost"]
    assert not checkpoint.exists()


def read_steps(checkpoint: Path) -> int:
    if not checkpoint.exists():
        return 0
    with safe_open(checkpoint, "pt") as handle:
        return int(handle.metadata()["steps"])
