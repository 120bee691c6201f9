"""The clip that another goes on from, from the first look at it until its frames are copied."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from deployments.contract.clip import FPS
from deployments.video import reader
from deployments.video.reader import Frames
from deployments.video.sound import Sound

CHUNK = 48
"""Frames that are copied at a time."""


class StartClip:
    """Owns a folder with the file in it: gone when this is closed, or when nobody holds it any more."""

    def __init__(self, data: bytes) -> None:
        """Raises VideoError when it can't be decoded to its end."""
        folder = tempfile.mkdtemp(prefix="start-")
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._file = Path(folder) / "start.mp4"
        try:
            self._file.write_bytes(data)
            self.count = reader.probe(self._file).frames
            heard = reader.sound(self._file)
        except BaseException:
            self.close()
            raise
        self.sound: Sound | None = None if heard is None else heard.fitted(self.count / FPS)
        """As long as the frames; None where there is no sound track."""

    @property
    def chunks(self) -> int:
        return -(-self.count // CHUNK)

    def last(self, count: int, size: tuple[int, int]) -> Frames:
        """The last `count` frames, or all where there are fewer, of width and height `size`. Raises VideoError."""
        return reader.last_frames(self._file, size, count)

    def frames(self, size: tuple[int, int]) -> Iterator[Frames]:
        """All frames, in as many parts as `chunks` says. Raises VideoError."""
        return reader.frames(self._file, size, chunk=CHUNK)
