"""What is in a video, found out by decoding all of it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from imageio_ffmpeg import get_ffmpeg_exe
from numpy.typing import NDArray

HEARD_RATE = 48_000


@dataclass(frozen=True)
class Inspected:
    codec: str
    pixel_format: str
    colours: str
    """Range and colour space, as in `tv, bt709`."""
    fps: float
    frames: int
    width: int
    height: int
    seconds: float
    """From the first frame's begin to the last one's end."""
    sound_codec: str | None
    sound_rate: int | None
    sound_channels: int | None
    sound_seconds: float | None
    faststart: bool
    """The index lies in front of the frames, so that playing can begin before all is there."""


def inspect(data: bytes) -> Inspected:
    """Fails when anything in the video can't be decoded."""
    described = (
        _ffmpeg(data, "-v", "info", "-i", "pipe:0", "-f", "null", "pipe:1").stderr.decode().split("Output #0")[0]
    )
    report = _output(data, "-map", "0:v:0", "-map", "0:a:0?", "-fps_mode", "passthrough", "-f", "framecrc").decode()
    picture = re.search(r"Video: (\w+).*?, (\w+)\(([^)]*)\)", described)
    assert picture is not None, described
    width, height = map(int, _noted(report, "dimensions", 0).split("x"))
    began, ended, frames = _span(report, 0)
    sound = re.search(r"Audio: (\w+)", described)
    return Inspected(
        codec=picture[1],
        pixel_format=picture[2],
        colours=picture[3],
        fps=float(frames / (ended - began)),
        frames=frames,
        width=width,
        height=height,
        seconds=float(ended - began),
        sound_codec=sound[1] if sound else None,
        sound_rate=int(_noted(report, "sample_rate", 1)) if sound else None,
        sound_channels={"mono": 1, "stereo": 2}[_noted(report, "channel_layout_name", 1)] if sound else None,
        sound_seconds=float(_span(report, 1)[1]) if sound else None,
        faststart=0 < data.find(b"moov") < data.find(b"mdat"),
    )


def decoded(data: bytes) -> NDArray[np.uint8]:
    """All frames, (F, H, W, 3)."""
    size = inspect(data)
    raw = _output(data, "-map", "0:v:0", "-fps_mode", "passthrough", "-pix_fmt", "rgb24", "-f", "rawvideo")
    return np.frombuffer(raw, np.uint8).reshape(-1, size.height, size.width, 3)


def heard(data: bytes) -> NDArray[np.float32]:
    """Left and right at `HEARD_RATE`, (2, n)."""
    raw = _output(data, "-map", "0:a:0", "-ac", "2", "-ar", str(HEARD_RATE), "-f", "f32le")
    return np.frombuffer(raw, np.float32).reshape(-1, 2).T


def _noted(report: str, name: str, stream: int) -> str:
    found = re.search(rf"^#{name} {stream}: (\S+)", report, re.MULTILINE)
    assert found is not None, report[:500]
    return found[1]


def _span(report: str, stream: int) -> tuple[Fraction, Fraction, int]:
    """When the stream begins and ends, in seconds, and of how many pieces it consists."""
    unit = Fraction(_noted(report, "tb", stream))
    pieces = re.findall(rf"^{stream}, *-?\d+, *(-?\d+), *(\d+),", report, re.MULTILINE)
    last_begin, last_length = map(int, pieces[-1])
    return int(pieces[0][0]) * unit, (last_begin + last_length) * unit, len(pieces)


def _output(data: bytes, *output: str) -> bytes:
    done = _ffmpeg(data, "-v", "error", "-xerror", "-err_detect", "explode", "-i", "pipe:0", *output, "pipe:1")
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return done.stdout


def _ffmpeg(data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([get_ffmpeg_exe(), "-hide_banner", *arguments], input=data, capture_output=True)
