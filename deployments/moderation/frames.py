"""Images for classifiers, from stored images and videos.

A still gives one picture, an animation frames from all over it, a video about one frame per second with its first and
its last, of the frames that models get of it. What is shown for less than that in between may be missed, and sound and
subtitles are not looked at. Nothing is returned that was read in part: what can't be read to its end was not moderated.
"""

from __future__ import annotations

import io
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageOps

from deployments.contract.job import FPS
from deployments.images import Pixels, resize
from deployments.video import reader
from deployments.video.writer import VideoError

MOST_FRAMES: Final = 32
FRAME_SIDE: Final = 512
"""Longest side of frames; stills stay as they are."""

_SECONDS = 60.0
"""To read one animation; hostile ones are small and take forever."""
_VIDEO_SECONDS = 110.0
"""To read one video twice; the service accepts what it can read once within a minute."""
_LONGEST_S = reader.LONGEST_S
"""Of a video."""
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


def spread(count: int, most: int = MOST_FRAMES) -> list[int]:
    """Which of so many frames, 24 a second: first, last and one per second between, or `most` of them evenly."""
    step = max(FPS, (count - 1) / (most - 1))
    return sorted({min(round(step * index), count - 1) for index in range(most)})


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
    return resize(pixels, *_fitted(width, height))


def _fitted(width: int, height: int) -> tuple[int, int]:
    """Width and height within FRAME_SIDE."""
    scale = min(1.0, FRAME_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _of_video(data: bytes) -> list[Pixels]:
    """The video is read twice: to count its frames, as headers may lie, and for those that are wanted."""
    deadline = time.monotonic() + _VIDEO_SECONDS
    try:
        with tempfile.TemporaryDirectory(prefix="frames-") as folder:
            file = Path(folder, "video")
            file.write_bytes(data)
            video = reader.probe(file, longest_s=_LONGEST_S, timeout_s=_VIDEO_SECONDS)
            if video.seconds > _LONGEST_S:
                raise UnreadableError(f"the video is longer than {_LONGEST_S:.0f} s")
            wanted, chosen = spread(video.frames), list[Pixels]()
            shown = reader.frames(file, _fitted(video.width, video.height))
            for number, frame in enumerate(chain.from_iterable(shown)):
                if number in wanted:
                    chosen.append(frame.copy())  # the others go
                if time.monotonic() > deadline:
                    raise UnreadableError(f"the video can't be read in {_VIDEO_SECONDS:.0f} s")
    except VideoError as error:
        raise UnreadableError(str(error)) from error
    if len(chosen) != len(wanted):
        raise UnreadableError(f"the video gave {len(chosen)} frames instead of {len(wanted)}")
    return chosen
