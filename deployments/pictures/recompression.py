"""Compression of single pictures by H.264, there and back: LTX-2 learned to go on from frames of videos."""

from __future__ import annotations

import subprocess

import numpy as np

from deployments.pictures.pixels import Pixels
from deployments.video.ffmpeg import VideoError, command


def recompressed(picture: Pixels, crf: int) -> Pixels:
    """What is left of a picture (H, W, 3), without the last of an odd number of rows or columns. Raises VideoError."""
    height, width = (side // 2 * 2 for side in picture.shape[:2])
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24"]
    # A frame that lasts a second, for which x264 takes more bits than for one of 24: so does diffusers.
    source = [*raw, "-s", f"{width}x{height}", "-r", "1", "-i", "pipe:0", "-vf", "scale=flags=bilinear"]
    codec = ["-c:v", "libx264", "-preset", "veryfast", "-crf", str(crf), "-threads", "1", "-pix_fmt", "yuv420p"]
    coded = _run(np.ascontiguousarray(picture[:height, :width]).tobytes(), *source, *codec, "-f", "h264", "pipe:1")
    decoded = _run(coded, "-f", "h264", "-i", "pipe:0", "-vf", "scale=flags=bilinear", *raw, "pipe:1")
    return np.frombuffer(bytearray(decoded), np.uint8).reshape(height, width, 3)


def _run(data: bytes, *arguments: str) -> bytes:
    process = subprocess.run(command(*arguments), input=data, capture_output=True, check=False)
    if process.returncode:
        raise VideoError(f"a picture can't be compressed: {process.stderr.decode(errors='replace').strip()}")
    return process.stdout
