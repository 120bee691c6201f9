"""Video in all modes, on the local profile's model."""

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
from support.images import image_base64, to_base64
from support.local_service import LocalService
from support.polling import poll_result, wait_for_end
from support.redis_process import until
from video_inspection import decode_audio, decode_frames, inspect

from serve_app.cli.service import Client

ENDPOINT = "gen-3-video"
FPS, RATE = 24, 48_000
PROMPT = "a red circle moves to the right on a dark blue background"
QUICK: dict[str, Any] = {"draft": True}
"""Options that save three quarters of the pixels."""

Frames = NDArray[np.uint8]


def make(client: Client, **body: Any) -> tuple[dict[str, Any], bytes]:
    task = wait_for_end(client, client.submit(ENDPOINT, body)["id"])
    assert task["status"] == "Ready", task
    return task, client.fetch(task["result"]["sample"])


def shrink(frames: Frames, size: tuple[int, int] = (40, 22)) -> NDArray[np.float32]:
    """Shrinks frames until only their composition is left."""
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames]).astype(np.float32)


def difference(one: Frames, other: Frames) -> float:
    return float(np.abs(shrink(one) - shrink(other)).mean())


def correlation(one: Frames, other: Frames) -> float:
    return float(np.corrcoef(shrink(one, (8, 4)).ravel(), shrink(other, (8, 4)).ravel())[0, 1])


def draw_keyframe(colour: str, left: int = 420) -> tuple[str, Frames]:
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
    for frame, expected, other in ((frames[:1], left, right), (frames[-1:], right, left)):
        assert difference(frame, expected[None]) < difference(frame, other[None]) / 2


@pytest.fixture(scope="module")
def draft(service: LocalService) -> tuple[dict[str, Any], bytes]:
    with service.client() as client:
        return make(client, mode="t2v", prompt=PROMPT, seed=11, **QUICK)


@pytest.mark.slow
def test_continuation_starts_with_the_given_video(client: Client, draft: tuple[dict[str, Any], bytes]) -> None:
    _, start = draft
    _, data = make(client, mode="v2v", prompt=PROMPT, start_video=to_base64(start), **QUICK)
    before, after = decode_frames(start).astype(np.float32), decode_frames(data)
    assert len(after) == len(before) + 5 * FPS
    assert np.square(after[: len(before)] - before).mean() < 65  # of 255 squared: 30 dB
    own, audio = decode_audio(start), decode_audio(data)
    assert abs(audio.shape[1] / RATE - len(after) / FPS) <= 1 / FPS
    length = own.shape[1] - RATE // 10
    assert np.abs(audio[:, :length] - own[:, :length]).mean() < 0.02


@pytest.mark.slow
def test_enhanced_draft_keeps_the_composition(client: Client, draft: tuple[dict[str, Any], bytes]) -> None:
    drafted, rough = draft
    other = {"prompt": "a white square falls on a yellow background", "generate_audio": False}
    _, unrelated = make(client, mode="t2v", seed=12, **other, **QUICK)
    assert inspect(unrelated).audio_codec is None
    enhanced, fine = make(client, mode="draft_enhance", draft_cache=drafted["result"]["draft_cache"])
    assert (inspect(rough).width, inspect(fine).width) == (640, 1920)
    assert enhanced["result"]["seed"] == 11
    assert enhanced["result"]["prompt"] == PROMPT
    alike, unalike = (correlation(decode_frames(fine), decode_frames(each)) for each in (rough, unrelated))
    assert alike > max(0.5, unalike + 0.2)


@pytest.mark.slow
def test_video_resumes_after_a_kill_and_costs_once(client: Client, service: LocalService) -> None:
    before = client.credits()
    task_id = client.submit(ENDPOINT, {"mode": "t2v", "prompt": PROMPT, "duration": 10, "seed": 3} | QUICK)["id"]
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
