from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import video_inspection

from deployments.backends.videos import ClipExport, export_folder
from deployments.images import Pixels
from deployments.video.writer import ClipWriter

SIZE = (64, 48)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def parts(*lengths: int) -> Iterator[Pixels]:
    for length in lengths:
        yield np.full((length, SIZE[1], SIZE[0], 3), 90, np.uint8)


def begun(frames: Iterator[Pixels], count: int) -> ClipExport:
    with export_folder() as folder:
        file = folder / "clip.mp4"
        return ClipExport(frames, ClipWriter(file, rendered=SIZE, size=SIZE, frames=count, sound=None), file, folder)


def assert_nothing_is_left(temporary: Path) -> None:
    assert list(temporary.iterdir()) == []
    assert [child for child in psutil.Process().children() if "ffmpeg" in child.name()] == []


def test_a_clip_is_written_part_by_part(temporary: Path) -> None:
    export = begun(parts(3, 2, 4), 9)
    for done in range(3):
        assert export.done == done
        export.advance()
    with pytest.raises(StopIteration):
        export.advance()
    export.finish()
    assert video_inspection.inspect(export.file.read_bytes()).frames == 9
    export.close()
    assert_nothing_is_left(temporary)


def test_the_first_frame_is_kept(temporary: Path) -> None:
    export = begun(iter([np.full((2, SIZE[1], SIZE[0], 3), shade, np.uint8) for shade in (7, 200)]), 4)
    assert export.still is None
    for _ in range(2):
        export.advance()
        assert export.still is not None
        assert export.still.shape == (SIZE[1], SIZE[0], 3)
        assert (export.still == 7).all()
    export.close()


def test_what_nobody_holds_is_gone(temporary: Path) -> None:
    export = begun(parts(3, 2), 5)
    export.advance()
    assert any("ffmpeg" in child.name() for child in psutil.Process().children())
    del export
    assert_nothing_is_left(temporary)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_an_export_can_be_given_up_at_any_time_and_twice(temporary: Path, done: int) -> None:
    export = begun(parts(3, 2), 5)
    for _ in range(done):
        export.advance()
    export.close()
    export.close()
    assert_nothing_is_left(temporary)


def test_a_part_that_fails_is_not_counted(temporary: Path) -> None:
    def broken() -> Iterator[Pixels]:
        yield from parts(3)
        raise MemoryError

    export = begun(broken(), 5)
    export.advance()
    with pytest.raises(MemoryError):
        export.advance()
    assert export.done == 1
    export.close()
    assert_nothing_is_left(temporary)


def test_a_folder_that_nobody_came_to_own_is_gone(temporary: Path) -> None:
    with pytest.raises(ValueError, match="no clip"):
        begun(parts(1), 0)
    assert_nothing_is_left(temporary)
