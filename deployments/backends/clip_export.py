"""A clip's way from latents to a file, a part at a time."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deployments.pictures.pixels import Pixels
from deployments.video.writer import ClipWriter


class ClipExport:
    """Owns `folder`, and all in it: gone when this is closed, or when nobody holds it any more."""

    def __init__(self, parts: Iterator[Pixels], writer: ClipWriter, file: Path, folder: Path) -> None:
        self.done = 0
        self.still: Pixels | None = None
        """The first frame, once it is there."""
        self.file = file
        self._parts = parts
        self._writer = writer
        self._remove = weakref.finalize(self, _remove, writer, folder)

    def advance(self) -> None:
        """Decodes and writes the next part. Raises StopIteration after the last, OutOfMemory, VideoError."""
        frames = next(self._parts)
        if self.still is None:
            self.still = frames[0].copy()
        self._writer.write(frames)
        self.done += 1

    def finish(self) -> None:
        """The file is complete then. Raises VideoError."""
        self._writer.close()

    def close(self) -> None:
        self._remove()


@contextmanager
def export_folder() -> Iterator[Path]:
    """A new folder for a ClipExport to own; gone when there is to be none."""
    folder = Path(tempfile.mkdtemp(prefix="clip-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _remove(writer: ClipWriter, folder: Path) -> None:
    writer.discard()
    shutil.rmtree(folder, ignore_errors=True)
