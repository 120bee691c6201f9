from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from support.video_inspection import AUDIO_RATE, decode_audio, decode_frames, inspect

from deployments.contract.request import FPS
from deployments.video.writer import Audio, VideoFileError, VideoWriter

pytestmark = pytest.mark.slow

RENDERED = (96, 64)
SIZE = (192, 128)


def encoders() -> list[psutil.Process]:
    """Returns this process's children that run ffmpeg."""
    return [child for child in psutil.Process().children() if "ffmpeg" in child.name()]


@pytest.fixture(autouse=True)
def _assert_no_processes() -> Iterator[None]:
    before = set(encoders())
    yield
    assert set(encoders()) == before


def gradient(count: int) -> np.ndarray:
    """Returns frames that get redder with time and greener to the right."""
    frames = np.full((count, RENDERED[1], RENDERED[0], 3), 40, np.uint8)
    frames[..., 0] = np.linspace(0, 255, count)[:, None, None]
    frames[..., 1] = np.linspace(20, 200, RENDERED[0])
    return frames


def tone(seconds: float, rate: int = 24_000) -> Audio:
    moments = np.arange(round(seconds * rate)) / rate
    samples = np.stack([0.5 * np.sin(2 * np.pi * 440 * moments), 0.2 * np.sin(2 * np.pi * 880 * moments)])
    return Audio(samples.astype(np.float32), rate)


def writer(
    file: Path, frames: int, audio: Audio | None = None, size: tuple[int, int] = SIZE, threads: int | None = 1
) -> VideoWriter:
    return VideoWriter(file, rendered=RENDERED, size=size, frames=frames, audio=audio, threads=threads)


def write_video(folder: Path, frames: int, audio: Audio | None = None, threads: int | None = 1) -> bytes:
    """Writes the gradient in chunks of 8 frames. Returns the file."""
    video = writer(folder / "video.mp4", frames, audio, threads=threads)
    images = gradient(frames)
    for start in range(0, frames, 8):
        video.write(images[start : start + 8])
    video.close()
    assert [file.name for file in folder.iterdir()] == ["video.mp4"]
    return (folder / "video.mp4").read_bytes()


@pytest.mark.parametrize(("frames", "threads"), [(1, 1), (49, None)])
def test_video_has_playable_streams(tmp_path: Path, frames: int, threads: int | None) -> None:
    report = inspect(write_video(tmp_path, frames, tone(frames / FPS), threads=threads))
    assert (report.codec, report.pixel_format, report.fps, report.frames) == ("h264", "yuv420p", 24, frames)
    assert report.colours.startswith("tv, bt709,")
    assert (report.width, report.height) == SIZE
    assert (report.audio_codec, report.audio_rate, report.audio_channels) == ("aac", 48_000, 2)
    assert report.seconds == pytest.approx(frames / FPS)
    assert report.audio_seconds == pytest.approx(report.seconds, abs=1 / FPS)
    assert report.faststart


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, 24_000), (0.5, 48_000), (2.1, 24_000)])
def test_audio_never_changes_the_length(tmp_path: Path, seconds: float, rate: int) -> None:
    data = write_video(tmp_path, 48, tone(seconds, rate))
    report = inspect(data)
    assert (report.frames, report.audio_rate) == (48, 48_000)
    assert report.audio_seconds == pytest.approx(2.0, abs=1 / FPS)
    loud = np.flatnonzero(np.abs(decode_audio(data)[0]) > 0.1)
    audible_until_s = (loud[-1] + 1) / AUDIO_RATE if len(loud) else 0.0
    assert audible_until_s == pytest.approx(min(seconds, 2.0), abs=0.05)  # AAC blurs ends slightly


def test_frames_and_audio_are_kept(tmp_path: Path) -> None:
    data = write_video(tmp_path, 48, tone(2.0))
    assert np.abs(decode_frames(data)[:, ::2, ::2].astype(int) - gradient(48)).mean((0, 1, 2)).max() < 4
    frequencies = np.fft.rfftfreq(AUDIO_RATE, 1 / AUDIO_RATE)
    channels = decode_audio(data)[:, AUDIO_RATE // 2 : AUDIO_RATE * 3 // 2]
    for channel, pitch, loudness in zip(channels, (440, 880), (0.5, 0.2), strict=True):
        assert frequencies[np.abs(np.fft.rfft(channel)).argmax()] == pitch
        assert np.std(channel) == pytest.approx(loudness / np.sqrt(2), abs=0.02)


def test_video_without_audio_has_no_track(tmp_path: Path) -> None:
    report = inspect(write_video(tmp_path, 8))
    assert (report.frames, report.faststart, report.audio_codec) == (8, True, None)


def test_frames_need_not_be_contiguous(tmp_path: Path) -> None:
    video = writer(tmp_path / "video.mp4", 8)
    video.write(np.ascontiguousarray(gradient(8).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3))
    video.close()
    frames = decode_frames((tmp_path / "video.mp4").read_bytes())[:, ::2, ::2].astype(int)
    assert np.abs(frames - gradient(8)).mean() < 4


def test_wrong_number_of_frames_makes_no_video(tmp_path: Path) -> None:
    short, long = (writer(tmp_path / f"{name}.mp4", 24, tone(1.0)) for name in ("short", "long"))
    short.write(gradient(24)[:23])
    with pytest.raises(VideoFileError, match="23 frames instead of 24"):
        short.close()
    long.write(gradient(24))
    with pytest.raises(VideoFileError, match="more than the 24 frames"):
        long.write(gradient(1))
    assert not list(tmp_path.iterdir())
    with pytest.raises(VideoFileError, match="no longer"):
        long.close()


@pytest.mark.parametrize("frame_count", [0, 24])
def test_discarded_video_leaves_nothing(tmp_path: Path, frame_count: int) -> None:
    before = encoders()
    video = writer(tmp_path / "video.mp4", 24, tone(1.0))
    video.write(gradient(24)[:frame_count])
    assert len(encoders()) == len(before) + 1
    video.discard()
    video.discard()
    assert encoders() == before
    assert not list(tmp_path.iterdir())
    for late in (video.close, lambda: video.write(gradient(1))):
        with pytest.raises(VideoFileError, match="no longer"):
            late()


def test_another_thread_can_discard_a_video(tmp_path: Path) -> None:
    video = writer(tmp_path / "video.mp4", 1000)
    [process] = encoders()
    process.suspend()  # so that the pipe fills up and the frames wait
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(video.write, gradient(1000))
        video.discard()
        with pytest.raises(VideoFileError, match=r"discarded|no longer"):
            writing.result()
    assert not list(tmp_path.iterdir())


def test_closed_video_stays(tmp_path: Path) -> None:
    video = writer(tmp_path / "video.mp4", 8)
    video.write(gradient(8))
    video.close()
    video.discard()
    with pytest.raises(VideoFileError, match="no longer"):
        video.close()
    del video
    gc.collect()
    assert inspect((tmp_path / "video.mp4").read_bytes()).frames == 8


def test_unwritable_file_is_a_video_error(tmp_path: Path) -> None:
    video = writer(tmp_path / "missing" / "video.mp4", 200)
    with pytest.raises(VideoFileError, match=r"can't be written: .*No such file") as failure:  # noqa: PT012
        for _ in range(200):
            video.write(gradient(1))
        video.close()
    assert str(tmp_path) not in str(failure.value)


def test_arrays_of_another_form_are_rejected(tmp_path: Path) -> None:
    video = writer(tmp_path / "video.mp4", 1)
    wrong: list[Any] = [np.zeros((1, 64, 96, 3), np.float32), np.zeros((1, 96, 64, 3), np.uint8)]
    for frames in wrong:
        with pytest.raises(ValueError, match="frames are uint8"):
            video.write(frames)
    video.discard()


@pytest.mark.parametrize(("frames", "size"), [(0, SIZE), (1, (95, 64)), (1, (96, 63))])
def test_invalid_video_sizes_are_rejected(tmp_path: Path, frames: int, size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no video"):
        writer(tmp_path / "video.mp4", frames, size=size)
    assert not list(tmp_path.iterdir())
