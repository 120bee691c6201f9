"""Makes test videos with ffmpeg."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from imageio_ffmpeg import get_ffmpeg_exe


def make_video(source: str, *output: str, audio: str | None = None, ending: str = "mp4") -> bytes:
    """Encodes `source` (an ffmpeg filter such as `testsrc`) and `audio`, in H.264 unless `output` differs."""
    inputs = [word for name in (source, audio) if name is not None for word in ("-f", "lavfi", "-i", name)]
    usual = ["-pix_fmt", "yuv420p", "-threads", "1"]
    with tempfile.TemporaryDirectory() as folder:
        return _encode(Path(folder, f"made.{ending}"), *inputs, *usual, *output)


def remux(data: bytes, *output: str, reading: tuple[str, ...] = (), ending: str = "mp4") -> bytes:
    """Copies the streams into a new file; `reading` are options for the input."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "given.mp4")
        source.write_bytes(data)
        return _encode(Path(folder, f"made.{ending}"), *reading, "-i", str(source), "-c", "copy", *output)


def _encode(file: Path, *arguments: str) -> bytes:
    subprocess.run([get_ffmpeg_exe(), "-nostdin", "-v", "error", *arguments, str(file)], check=True)
    return file.read_bytes()
