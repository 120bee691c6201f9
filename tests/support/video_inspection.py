"""Decodes videos and reports their streams."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from imageio_ffmpeg import get_ffmpeg_exe
from numpy.typing import NDArray

AUDIO_RATE = 48_000


@dataclass(frozen=True)
class VideoReport:
    codec: str
    pixel_format: str
    colours: str
    """Range and colour space, such as `tv, bt709`."""
    fps: float
    frames: int
    width: int
    height: int
    seconds: float
    """Seconds from the start of the first frame to the end of the last."""
    audio_codec: str | None
    audio_rate: int | None
    audio_channels: int | None
    audio_seconds: float | None
    faststart: bool
    """True if the index precedes the frames, so that a player can start before it has the whole file."""


def inspect(data: bytes) -> VideoReport:
    """Decodes the whole video; fails on any error."""
    description = (
        _ffmpeg(data, "-v", "info", "-i", "pipe:0", "-f", "null", "pipe:1").stderr.decode().split("Output #0")[0]
    )
    report = _output(data, "-map", "0:v:0", "-map", "0:a:0?", "-fps_mode", "passthrough", "-f", "framecrc").decode()
    image = re.search(r"Video: (\w+).*?, (\w+)\(([^)]*)\)", description)
    assert image is not None, description
    width, height = map(int, _probe_field(report, "dimensions", 0).split("x"))
    start, end, frames = _span(report, 0)
    audio = re.search(r"Audio: (\w+)", description)
    return VideoReport(
        codec=image[1],
        pixel_format=image[2],
        colours=image[3],
        fps=float(frames / (end - start)),
        frames=frames,
        width=width,
        height=height,
        seconds=float(end - start),
        audio_codec=audio[1] if audio else None,
        audio_rate=int(_probe_field(report, "sample_rate", 1)) if audio else None,
        audio_channels={"mono": 1, "stereo": 2}[_probe_field(report, "channel_layout_name", 1)] if audio else None,
        audio_seconds=float(_span(report, 1)[1]) if audio else None,
        faststart=0 < data.find(b"moov") < data.find(b"mdat"),
    )


def decode_frames(data: bytes) -> NDArray[np.uint8]:
    """Returns all frames, (F, H, W, 3)."""
    size = inspect(data)
    raw = _output(data, "-map", "0:v:0", "-fps_mode", "passthrough", "-pix_fmt", "rgb24", "-f", "rawvideo")
    return np.frombuffer(raw, np.uint8).reshape(-1, size.height, size.width, 3)


def decode_audio(data: bytes) -> NDArray[np.float32]:
    """Returns left and right channel at `AUDIO_RATE`, (2, n)."""
    raw = _output(data, "-map", "0:a:0", "-ac", "2", "-ar", str(AUDIO_RATE), "-f", "f32le")
    return np.frombuffer(raw, np.float32).reshape(-1, 2).T


def _probe_field(report: str, name: str, stream: int) -> str:
    match = re.search(rf"^#{name} {stream}: (\S+)", report, re.MULTILINE)
    assert match is not None, report[:500]
    return match[1]


def _span(report: str, stream: int) -> tuple[Fraction, Fraction, int]:
    """Returns start and end of a stream in seconds, and the number of its packets."""
    unit = Fraction(_probe_field(report, "tb", stream))
    packets = re.findall(rf"^{stream}, *-?\d+, *(-?\d+), *(\d+),", report, re.MULTILINE)
    last_start, last_length = map(int, packets[-1])
    return int(packets[0][0]) * unit, (last_start + last_length) * unit, len(packets)


def _output(data: bytes, *output: str) -> bytes:
    result = _ffmpeg(data, "-v", "error", "-xerror", "-err_detect", "explode", "-i", "pipe:0", *output, "pipe:1")
    assert result.returncode == 0, result.stderr.decode()
    assert not result.stderr, result.stderr.decode()
    return result.stdout


def _ffmpeg(data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([get_ffmpeg_exe(), "-hide_banner", *arguments], input=data, capture_output=True)
