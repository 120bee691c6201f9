"""Videos of every kind, as ffmpeg makes them."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from imageio_ffmpeg import get_ffmpeg_exe


def made(source: str, *output: str, sound: str | None = None, ending: str = "mp4") -> bytes:
    """A video of `source` (a filter of ffmpeg like `testsrc`) and maybe `sound`, in H.264 unless `output` differs."""
    inputs = [word for name in (source, sound) if name is not None for word in ("-f", "lavfi", "-i", name)]
    usual = ["-pix_fmt", "yuv420p", "-threads", "1"]
    with tempfile.TemporaryDirectory() as folder:
        return _written(Path(folder, f"made.{ending}"), *inputs, *usual, *output)


def remade(data: bytes, *output: str, reading: tuple[str, ...] = (), ending: str = "mp4") -> bytes:
    """The same streams in a new file; `reading` says how the given one is read."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "given.mp4")
        given.write_bytes(data)
        return _written(Path(folder, f"made.{ending}"), *reading, "-i", str(given), "-c", "copy", *output)


def _written(file: Path, *arguments: str) -> bytes:
    subprocess.run([get_ffmpeg_exe(), "-nostdin", "-v", "error", *arguments, str(file)], check=True)
    return file.read_bytes()
