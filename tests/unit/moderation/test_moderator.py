from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from imageio_ffmpeg import get_ffmpeg_exe

from deployments.contract.moderation import ClassifierSpec, ModeratorSpec
from deployments.contract.objects import ObjectStore
from deployments.images import Pixels
from deployments.moderation import deployment as moderator
from deployments.moderation.deployment import Moderator
from deployments.moderation.frames import UnreadableError, decode_images
from deployments.moderation.known_images import fingerprint


def patches(seed: int) -> npt.NDArray[np.uint8]:
    """Returns an image with many details."""
    return np.kron(np.random.default_rng(seed).integers(0, 256, (15, 20, 3), np.uint8), np.ones((16, 16, 1), np.uint8))


def png(image: npt.NDArray[np.uint8]) -> bytes:
    return cv2.imencode(".png", image[..., ::-1])[1].tobytes()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore((tmp_path / "objects").as_uri())


@pytest.fixture
async def deployment(tmp_path: Path, store: ObjectStore) -> AsyncIterator[Moderator]:
    """A moderator that knows one forbidden image."""
    (tmp_path / "known.txt").write_text(f"{fingerprint(patches(1)).text} violence\n")
    images = ClassifierSpec("known-images", str(tmp_path / "known.txt")), ClassifierSpec("skin")
    spec = ModeratorSpec((ClassifierSpec("lexicon"),), images, (tmp_path / "objects").as_uri(), threads=1)
    replica = Moderator.__new__(Moderator)
    await Moderator.__init__(replica, spec)  # the way Ray Serve calls it
    yield replica
    replica._thread.shutdown()


async def test_texts_and_stored_images_are_moderated(deployment: Moderator, store: ObjectStore) -> None:
    texts = "a very bloody murder scene", "a red circle on a white ground"
    harmful, harmless = await asyncio.gather(*map(deployment.moderate_text, texts))
    assert harmful["violence"] >= 0.65
    assert max(harmless.values(), default=0.0) == 0
    for seed in (1, 2):
        await store.put(f"inputs/{seed}.png", png(patches(seed)), "image/png")
    first, other = await asyncio.gather(*(deployment.moderate_object(f"inputs/{seed}.png") for seed in (1, 2)))
    assert first["violence"] == 1
    assert other.get("violence", 0) == 0


async def test_video_has_the_score_of_its_worst_frame(
    deployment: Moderator, store: ObjectStore, tmp_path: Path
) -> None:
    for index, seed in enumerate((2, 1, 3)):
        (tmp_path / f"frame-{index}.png").write_bytes(png(patches(seed)))
    source = ["-framerate", "1", "-i", str(tmp_path / "frame-%d.png")]
    command = [get_ffmpeg_exe(), "-v", "error", *source, "-pix_fmt", "yuv420p", "-crf", "12"]
    await asyncio.to_thread(subprocess.run, [*command, str(tmp_path / "clip.mp4")], check=True)
    await store.put("results/clip.mp4", (tmp_path / "clip.mp4").read_bytes(), "video/mp4")
    assert (await deployment.moderate_object("results/clip.mp4"))["violence"] == 1


async def test_unreadable_objects_raise(deployment: Moderator, store: ObjectStore) -> None:
    with pytest.raises(FileNotFoundError):
        await deployment.moderate_object("inputs/gone.png")
    await store.put("inputs/broken.png", png(patches(1))[:-200], "image/png")
    with pytest.raises(UnreadableError):
        await deployment.moderate_object("inputs/broken.png")
    await deployment.check_health()


async def test_failing_or_hung_classifier_is_unhealthy(
    deployment: Moderator, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("inputs/1.png", png(patches(1)), "image/png")

    def fail(images: Sequence[object]) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with monkeypatch.context() as patch:
        patch.setattr(deployment._images, "_work", fail)
        for _ in range(moderator._MAX_FAULTS):
            await deployment.check_health()
            with pytest.raises(RuntimeError, match="CUDA"):
                await deployment.moderate_object("inputs/1.png")
            await deployment.moderate_text("a red circle")
    with pytest.raises(RuntimeError, match="in a row"):
        await deployment.check_health()
    await deployment.moderate_object("inputs/1.png")
    deployment._texts.busy_since = time.monotonic() - 1
    await deployment.check_health()
    monkeypatch.setattr(moderator, "_MAX_BATCH_S", 0.5)
    with pytest.raises(RuntimeError, match="running"):
        await deployment.check_health()


async def test_slow_video_does_not_delay_images(
    deployment: Moderator, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reading = decode_images, threading.Event()

    def slow(data: bytes, key: str) -> list[Pixels]:
        if key.endswith(".mp4"):
            assert reading.wait(60)
            raise UnreadableError
        return read(data, key)

    monkeypatch.setattr(moderator, "decode_images", slow)
    await store.put("inputs/1.png", png(patches(1)), "image/png")
    await store.put("inputs/slow.mp4", b"x", "video/mp4")
    videos = [asyncio.create_task(deployment.moderate_object("inputs/slow.mp4")) for _ in range(8)]
    assert (await deployment.moderate_object("inputs/1.png"))["violence"] == 1
    reading.set()
    assert all(isinstance(each, UnreadableError) for each in await asyncio.gather(*videos, return_exceptions=True))
