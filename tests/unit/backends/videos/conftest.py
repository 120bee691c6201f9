from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import video_encoding
from support.bundle import cpu_config
from video_jobs import HEIGHT, START_FRAMES, WIDTH, ffmpeg_processes, gradient_image, png

from deployments import native_loading
from deployments.contract.objects import ObjectStore
from deployments.contract.request import FPS
from deployments.families.video_family import VideoFamily


@pytest.fixture(scope="session")
def family() -> VideoFamily:
    loaded = native_loading.load(cpu_config("bundled/ltx2")).family
    assert isinstance(loaded, VideoFamily)
    return loaded


@pytest.fixture(scope="session")
def start() -> bytes:
    length = START_FRAMES / FPS
    return video_encoding.make_video(
        f"testsrc2=size={WIDTH}x{HEIGHT}:rate={FPS}:duration={length}", audio=f"sine=frequency=440:duration={length}"
    )


@pytest.fixture
def store(tmp_path: Path, start: bytes) -> ObjectStore:
    store = ObjectStore((tmp_path / "objects").as_uri())
    store.put_blocking("inputs/start", start, "video/mp4")
    store.put_blocking("inputs/image", png(gradient_image()), "image/png")
    store.put_blocking("inputs/text", b"hello", "image/png")
    return store


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of videos being written. After the test it must be empty and no ffmpeg may run."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert not ffmpeg_processes()
