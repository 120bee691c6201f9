from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from support import video_inspection
from support.jobs import make_job
from torch import Tensor

from deployments.backends.video_checkpoints import (
    LATENTS_TYPE,
    BrokenLatentsError,
    VideoCheckpoints,
    pack_latents,
    unpack_latents,
)
from deployments.backends.videos import VideoExport, export_folder
from deployments.contract.job import checkpoint_key
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.families.canvas import Scale, video_shape
from deployments.families.video_family import PromptEmbeds, Stream, VideoState
from deployments.images import Pixels
from deployments.video.writer import VideoWriter

KEY = checkpoint_key("job")
STEPS = 4


def make_stream(tokens: int, channels: int) -> Stream:
    x = torch.randn(1, tokens, channels)
    return Stream(x, torch.zeros(1, tokens, 1), x.clone(), torch.zeros(1, 1, tokens, 2))


def make_state() -> VideoState:
    """Returns a state before its first step."""
    return VideoState(
        job=make_job("job", steps=STEPS, video=VideoParams(frames=9)),
        shape=video_shape(64, 64, lead=0, frames=9, scale=Scale(32, 8, 12.5), render_side=None),
        video=make_stream(6, 8),
        audio=make_stream(5, 3),
        prompt=PromptEmbeds(torch.zeros(1, 2, 4), torch.zeros(1, 2, 4), torch.ones(1, 2)),
        sigmas=torch.linspace(1, 0, STEPS + 1),
        chunks=2,
    )


def step(state: VideoState) -> None:
    state.video.x, state.audio.x, state.i = state.video.x + 1, state.audio.x - 1, state.i + 1


def resume(store: ObjectStore) -> tuple[VideoState, tuple[Tensor, Tensor]]:
    """Resumes a new state from the checkpoint. Returns it and its initial latents."""
    state = make_state()
    initial = state.video.x, state.audio.x
    checkpoints = VideoCheckpoints(store, "m")
    checkpoints.resume(state, checkpoints.read(KEY))
    return state, initial


@pytest.mark.parametrize("steps", [1, STEPS])
def test_another_worker_resumes_from_the_checkpoint(store: ObjectStore, steps: int) -> None:
    lost, checkpoints = make_state(), VideoCheckpoints(store, "m")
    for _ in range(steps):
        step(lost)
        checkpoints.keep(lost)
        checkpoints.settle()
    state, _ = resume(store)
    assert state.i == steps
    assert torch.equal(state.video.x, lost.video.x)
    assert torch.equal(state.audio.x, lost.audio.x)


def make_checkpoint(model: str | None = "m", steps: str | None = "2", **tensors: Tensor) -> bytes:
    like = make_state()
    metadata = {name: value for name, value in (("model", model), ("steps", steps)) if value is not None}
    return pack_latents({"video": like.video.x, "audio": like.audio.x} | tensors, metadata)


@pytest.mark.parametrize(
    "data",
    [
        make_checkpoint()[:-5],
        make_checkpoint(model="another"),
        make_checkpoint(model=None),
        make_checkpoint(steps="two"),
        make_checkpoint(steps="0"),
        make_checkpoint(steps=str(STEPS + 1)),
        make_checkpoint(video=torch.zeros(1, 7, 8)),
        pack_latents({"video": torch.zeros(1, 6, 8)}, {"model": "m", "steps": "2"}),
    ],
)
def test_unusable_checkpoint_is_ignored(store: ObjectStore, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    store.put_blocking(KEY, data, LATENTS_TYPE)
    state, initial = resume(store)
    assert state.i == 0
    assert state.video.x is initial[0]
    assert state.audio.x is initial[1]
    assert "job starts over" in caplog.text


def test_only_an_existing_checkpoint_is_used(store: ObjectStore) -> None:
    assert resume(store)[0].i == 0
    store.put_blocking(KEY, make_checkpoint(), LATENTS_TYPE)
    assert resume(store)[0].i == 2


def down(*_: object) -> None:
    raise PermissionError("/srv/objects")


def test_unreachable_store_only_loses_checkpoints(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "put_blocking", down)
    monkeypatch.setattr(store, "get_blocking", down)
    state, checkpoints = make_state(), VideoCheckpoints(store, "m")
    assert checkpoints.read(KEY) is None
    for _ in range(2):
        step(state)
        checkpoints.keep(state)
        checkpoints.settle()
    assert state.i == 2


def test_steps_do_not_wait_for_checkpoints(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    started, resume_put = threading.Event(), threading.Event()
    put = store.put_blocking

    def slow(*arguments: Any) -> None:
        started.set()
        resume_put.wait()
        put(*arguments)

    monkeypatch.setattr(store, "put_blocking", slow)
    state, checkpoints = make_state(), VideoCheckpoints(store, "m")
    step(state)
    first = state.video.x
    checkpoints.keep(state)
    started.wait()
    for _ in range(2):
        step(state)
        checkpoints.keep(state)
    resume_put.set()
    checkpoints.settle()
    again, _ = resume(store)
    assert again.i == 1
    assert torch.equal(again.video.x, first)
    checkpoints.keep(state)
    checkpoints.settle()
    assert resume(store)[0].i == 3


def test_latents_and_metadata_are_unpacked_unchanged() -> None:
    with torch.inference_mode():
        tensors = {"video": torch.randn(1, 8, 4), "audio": torch.randn(1, 3, 5).transpose(1, 2)}
    metadata = {"model": "a/b \N{SNOWMAN}", "steps": "3"}
    again, stored_metadata = unpack_latents(pack_latents(tensors, metadata))
    assert stored_metadata == metadata
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


WHOLE = pack_latents({"x": torch.ones(4)}, {"model": "m"})


@pytest.mark.parametrize("data", [b"", b"hello", b"\xff" * 64, WHOLE[:-1], WHOLE[:20], save({"x": torch.ones(4)})])
def test_broken_latents_are_rejected(data: bytes) -> None:
    with pytest.raises(BrokenLatentsError):
        unpack_latents(data)


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_any_wrong_byte_is_rejected_or_read(place: int, value: int) -> None:
    data = bytearray(WHOLE)
    data[place] = value
    try:
        tensors, metadata = unpack_latents(bytes(data))
    except BrokenLatentsError:
        return
    assert all(tensor.numel() for tensor in tensors.values())
    assert all(isinstance(value, str) for value in metadata.values())


SIZE = (64, 48)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def parts(*lengths: int) -> Iterator[Pixels]:
    for length in lengths:
        yield np.full((length, SIZE[1], SIZE[0], 3), 90, np.uint8)


def begin_export(frames: Iterator[Pixels], count: int) -> VideoExport:
    with export_folder() as folder:
        file = folder / "video.mp4"
        return VideoExport(frames, VideoWriter(file, rendered=SIZE, size=SIZE, frames=count, audio=None), file, folder)


def assert_no_files(temporary: Path) -> None:
    assert list(temporary.iterdir()) == []
    assert [child for child in psutil.Process().children() if "ffmpeg" in child.name()] == []


def test_video_is_written_in_parts(temporary: Path) -> None:
    export = begin_export(parts(3, 2, 4), 9)
    for count in range(3):
        assert export.done == count
        export.advance()
    with pytest.raises(StopIteration):
        export.advance()
    export.finish()
    assert video_inspection.inspect(export.file.read_bytes()).frames == 9
    export.close()
    assert_no_files(temporary)


def test_export_keeps_frames_for_moderation(temporary: Path) -> None:
    export = begin_export(iter([np.full((15, SIZE[1], SIZE[0], 3), shade, np.uint8) for shade in (7, 90, 200)]), 45)
    for _ in range(3):
        export.advance()
    assert [frame.shape for frame in export.samples] == [(SIZE[1], SIZE[0], 3)] * 3
    assert [int(frame.mean()) for frame in export.samples] == [7, 90, 200], "the first, one a second, and the last"
    export.close()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_export_can_be_closed_at_any_time(temporary: Path, count: int) -> None:
    export = begin_export(parts(3, 2), 5)
    for _ in range(count):
        export.advance()
    export.close()
    export.close()
    assert_no_files(temporary)


def test_failed_part_is_not_counted(temporary: Path) -> None:
    def broken() -> Iterator[Pixels]:
        yield from parts(3)
        raise MemoryError

    export = begin_export(broken(), 5)
    export.advance()
    with pytest.raises(MemoryError):
        export.advance()
    assert export.done == 1
    export.close()
    assert_no_files(temporary)


def test_folder_of_a_failed_export_is_deleted(temporary: Path) -> None:
    with pytest.raises(ValueError, match="no video"):
        begin_export(parts(1), 0)
    assert_no_files(temporary)
