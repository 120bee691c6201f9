from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pictures import encoded
from support.website import Website
from video_making import made

from serve_app.inputs.inputs import Inputs, InputVideo, read_video
from serve_app.inputs.settings import BadVideo, VideoLimits
from serve_app.inputs.url_guard import UrlGuard

VIDEO = made("testsrc=s=96x64:d=1:r=24", sound="sine=d=1")
SMALL = VideoLimits(max_seconds=1.0, min_side=64, max_side=100)


@pytest.fixture(autouse=True)
def _no_files_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = tmp_path / "kept"
    kept.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("serve_app.inputs.inputs.tempfile.tempdir", str(kept))
        yield
    assert not list(kept.iterdir())


@pytest.fixture
def inputs() -> Iterator[Inputs]:
    gate = Inputs(UrlGuard(["127.0.0.0/8"]), decoders=1)
    yield gate
    gate.close()


async def test_every_way_to_send_a_video(inputs: Inputs, web: Website) -> None:
    web.put("/clip", VIDEO)
    text = encoded(VIDEO)
    for value in (text, f" {text}\n", f"data:video/mp4;base64,{text}", web.url("/clip"), f" {web.url('/clip')} "):
        video = await inputs.video(value, "us")
        assert video == InputVideo(VIDEO, 96, 64)
    assert (video.content_type, video.extension) == ("video/mp4", "mp4")
    assert "data" not in repr(video)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("testsrc=s=96x64:d=1.05:r=24", "too long"),
        ("testsrc=s=96x62:d=0.5:r=24", "96x62 pixels"),
        ("testsrc=s=102x64:d=0.5:r=24", "102x64 pixels"),
        ("testsrc=s=64x64:d=0.5:r=24,setsar=2", "128x64 pixels"),
    ],
)
def test_videos_over_the_limits(source: str, problem: str) -> None:
    with pytest.raises(BadVideo, match=problem) as refused:
        read_video(made(source), SMALL)
    assert "at most 50 MB, from 1/24 s to 1 s long, with sides from 64 to 100 pixels" in str(refused.value)


@pytest.mark.parametrize(
    "source", ["testsrc=s=100x64:d=1:r=24", "testsrc=s=64x100:d=1:r=60", "testsrc=s=64x64:d=0.04:r=24"]
)
def test_videos_just_within_the_limits(source: str) -> None:
    assert read_video(made(source), SMALL).height <= 100


def test_decoding_has_an_end() -> None:
    with pytest.raises(BadVideo, match="can't be read in 0 s"):
        read_video(VIDEO, VideoLimits(max_decode_s=0.0))


@pytest.mark.parametrize(("value", "problem"), [("***", "base64"), ("http://127.0.0.1:1/", "could not be fetched")])
async def test_values_that_hold_no_file(inputs: Inputs, value: str, problem: str) -> None:
    with pytest.raises(BadVideo, match=problem):
        await inputs.video(value, "us")


async def test_byte_limit_on_both_sides(inputs: Inputs, web: Website) -> None:
    web.put("/", VIDEO)
    enough, little = VideoLimits(max_bytes=len(VIDEO)), VideoLimits(max_bytes=len(VIDEO) - 1)
    for value in (encoded(VIDEO), web.url()):
        assert (await inputs.video(value, "us", enough)).data == VIDEO
        with pytest.raises(BadVideo, match="file is too large"):
            await inputs.video(value, "us", little)


@settings(max_examples=25)
@given(st.binary(min_size=1, max_size=300), st.integers(0, len(VIDEO)))
def test_spoilt_bytes_never_raise_anything_else(junk: bytes, start: int) -> None:
    try:
        video = read_video(VIDEO[:start] + junk + VIDEO[start + len(junk) :])
    except BadVideo:
        return
    assert min(video.width, video.height) >= 64


def test_reading_has_bounds_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large = made("testsrc=s=4096x4096:d=0.05:r=24", "-preset", "ultrafast")
    assert read_video(large).width == 4096
    monkeypatch.setattr("deployments.video.reader._MOST_ADDRESSES", 200 * 2**20)
    with pytest.raises(BadVideo, match="no video that can be read"):
        read_video(large)


async def test_the_videos_of_one_organization_leave_room_for_others(inputs: Inputs) -> None:
    slow = encoded(made("testsrc=s=1920x1080:d=3:r=24", "-preset", "ultrafast"))
    hostile = [asyncio.create_task(inputs.video(slow, "hostile")) for _ in range(4)]
    assert (await inputs.video(encoded(VIDEO), "honest")).width == 96
    assert not all(each.done() for each in hostile)
    await asyncio.gather(*hostile)
