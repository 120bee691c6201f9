"""From stored bytes to the pictures that judges look at.

A still gives one picture, an animation frames from all over it, a video about one frame per second with its first and
its last. What is shown for less than that in between may be missed, and sound and subtitles are not looked at. Nothing
is returned that was read in part: what can't be read to its end was not judged.
"""

from __future__ import annotations

import io
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
from imageio_ffmpeg import get_ffmpeg_exe
from PIL import Image, ImageOps

from deployments.families.pictures import Pixels, resize

MOST_FRAMES: Final = 32
FRAME_SIDE: Final = 512
"""Longest side of frames; stills stay as they are."""

_SECONDS = 60.0
"""To read one animation or video; hostile ones are small and take forever."""
_MOST_PIXELS = 64 * 2**20
"""Of a video's frame: 8192 x 8192."""
_VIDEO_ENDINGS = (".mp4", ".m4v", ".mov")


class UnreadableError(Exception):
    """The bytes are no picture or video that can be read to its end."""


def pictures_of(data: bytes, content_type_or_key: str) -> list[Pixels]:
    """At least one, in order. Raises UnreadableError."""
    if is_video(content_type_or_key):
        return _of_video(data)
    return _of_picture(data)


def is_video(content_type_or_key: str) -> bool:
    name = content_type_or_key.partition(";")[0].strip().lower()
    return name.startswith("video/") or name.endswith(_VIDEO_ENDINGS)


def spread(times: Sequence[Fraction], most: int = MOST_FRAMES) -> list[int]:
    """Which of the frames shown at `times`: first, last and one per second between, or `most` of them evenly."""
    step = max(Fraction(1), (times[-1] - times[0]) / (most - 1))
    wanted = [times[0] + step * index for index in range(most)]
    chosen = {0, len(times) - 1}
    frame = 0
    for moment in wanted:
        while frame + 1 < len(times) and times[frame + 1] <= moment:
            frame += 1
        chosen.add(frame)
    return sorted(chosen)


def _of_picture(data: bytes) -> list[Pixels]:
    deadline = time.monotonic() + _SECONDS
    try:
        with Image.open(io.BytesIO(data)) as picture:
            count = getattr(picture, "n_frames", 1)
            if count == 1:
                return [_shown(picture)]
            frames = []
            for index in np.unique(np.linspace(0, count - 1, min(count, MOST_FRAMES)).round().astype(int)):
                picture.seek(int(index))
                frames.append(_small(_shown(picture)))
                if time.monotonic() > deadline:
                    raise UnreadableError(f"the animation can't be read in {_SECONDS:.0f} s")
            return frames
    except UnreadableError:
        raise
    except Exception as error:  # Pillow's many decoders fail in many ways
        raise UnreadableError(f"no picture that can be read: {error}") from error


def _shown(picture: Image.Image) -> Pixels:
    """What viewers show: upright, transparent parts over white."""
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I;16"):  # Pillow would cut these at 255: white, whatever they show
        return np.repeat((np.asarray(picture) >> 8).astype(np.uint8)[..., None], 3, axis=2)
    if picture.mode in ("I", "F"):
        raise UnreadableError("nobody knows which of its values is white")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return np.array(picture.convert("RGB"), np.uint8)


def _small(pixels: Pixels) -> Pixels:
    height, width = pixels.shape[:2]
    scale = min(1.0, FRAME_SIDE / max(height, width))
    return resize(pixels, max(1, round(width * scale)), max(1, round(height * scale)))


def _of_video(data: bytes) -> list[Pixels]:
    """The video is read twice: for the times of its frames, as headers may lie, and for those that are wanted."""
    deadline = time.monotonic() + _SECONDS
    with tempfile.TemporaryDirectory(prefix="frames-") as folder:
        file = Path(folder, "video")
        file.write_bytes(data)
        times = _times(_ffmpeg(file, ["-f", "framecrc"], "null", deadline))
        wanted = spread(times)
        # Commas divide filters, so those within one are escaped.
        chosen = "+".join(rf"eq(n\,{index})" for index in wanted)
        side = f"min({FRAME_SIDE}\\,{{}})"
        scaled = f"scale={side.format('iw')}:{side.format('ih')}:force_original_aspect_ratio=decrease"
        output = _ffmpeg(file, ["-c:v", "ppm", "-f", "image2pipe"], f"select={chosen},{scaled}", deadline)
    frames = _portable_pixmaps(output)
    if len(frames) != len(wanted):
        raise UnreadableError(f"the video gave {len(frames)} frames instead of {len(wanted)}")
    return frames


def _ffmpeg(file: Path, output: list[str], filters: str, deadline: float) -> bytes:
    """What ffmpeg writes about the first video stream, the one that is played."""
    command = [get_ffmpeg_exe(), "-nostdin", "-v", "error", "-xerror", "-err_detect", "explode", "-threads", "2"]
    # Named outright, for a playlist in disguise would make ffmpeg open other files and addresses.
    command += ["-max_pixels", str(_MOST_PIXELS), "-protocol_whitelist", "file,pipe", "-f", "mov", "-i", str(file)]
    command += ["-map", "0:v:0", "-vf", filters, "-fps_mode", "passthrough", *output, "pipe:1"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise UnreadableError(f"the video can't be read in {_SECONDS:.0f} s") from error
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise UnreadableError(f"no video that can be read: {reason[-1] if reason else done.returncode}")
    return done.stdout


def _times(report: bytes) -> list[Fraction]:
    """In seconds, from ffmpeg's `framecrc`: its unit, then stream, decoding time and time per frame."""
    text = report.decode(errors="replace")
    unit = re.search(r"^#tb 0: (\d+)/(\d+)", text, re.MULTILINE)
    frames = re.findall(r"^0, *-?\d+, *(-?\d+),", text, re.MULTILINE)
    if unit is None or not frames:
        raise UnreadableError("the video has no frames")
    return [int(moment) * Fraction(int(unit[1]), int(unit[2])) for moment in frames]


def _portable_pixmaps(data: bytes) -> list[Pixels]:
    """Pictures one after the other, each with its own size: videos may change theirs."""
    frames = []
    while data:
        header = re.match(rb"P6\s(\d+) (\d+)\s255\s", data)
        if header is None:
            raise UnreadableError("the video's frames can't be told apart")
        width, height = int(header[1]), int(header[2])
        end = header.end() + width * height * 3
        frames.append(np.frombuffer(data[header.end() : end], np.uint8).reshape(height, width, 3).copy())  # writable
        data = data[end:]
    return frames
