"""Images for classifiers, from stored images and videos.

A still gives one image, an animation frames from all over it, a video about one frame per second with its first and
its last, of the frames that models get of it. What is shown for less than that in between may be missed, and sound and
subtitles are not looked at. Nothing is returned that was read in part: what can't be read to its end was not moderated.
"""

from __future__ import annotations

import io
import tempfile
import time
from itertools import chain
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from deployments.images import Pixels
from deployments.video import reader
from deployments.video.writer import MOST_FRAMES, VideoError, fit_size, frame_indices, shrink

_SECONDS = 60.0
"""To read one animation; hostile ones are small and take forever."""
_VIDEO_SECONDS = 110.0
"""To read one video twice; the service accepts what it can read once within a minute."""
_LONGEST_S = reader.LONGEST_S
"""Of a video."""
_VIDEO_ENDINGS = (".mp4", ".m4v", ".mov")


class UnreadableError(Exception):
    """The bytes are no image or video that can be read to its end."""


def decode_images(data: bytes, content_type_or_key: str) -> list[Pixels]:
    """At least one, in order. Raises UnreadableError."""
    if is_video(content_type_or_key):
        return _decode_video(data)
    return _decode_image(data)


def is_video(content_type_or_key: str) -> bool:
    name = content_type_or_key.partition(";")[0].strip().lower()
    return name.startswith("video/") or name.endswith(_VIDEO_ENDINGS)


def _decode_image(data: bytes) -> list[Pixels]:
    deadline = time.monotonic() + _SECONDS
    try:
        with Image.open(io.BytesIO(data)) as image:
            count = getattr(image, "n_frames", 1)
            if count == 1:
                return [_to_rgb(image)]
            frames = []
            for index in np.unique(np.linspace(0, count - 1, min(count, MOST_FRAMES)).round().astype(int)):
                image.seek(int(index))
                frames.append(shrink(_to_rgb(image)))
                if time.monotonic() > deadline:
                    raise UnreadableError(f"the animation can't be read in {_SECONDS:.0f} s")
            return frames
    except UnreadableError:
        raise
    except Exception as error:  # Pillow's many decoders fail in many ways
        raise UnreadableError(f"no image that can be read: {error}") from error


def _to_rgb(image: Image.Image) -> Pixels:
    """What viewers show: upright, transparent parts over white."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow would cut these at 255: white, whatever they show
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
    if image.mode in ("I", "F"):
        raise UnreadableError("nobody knows which of its values is white")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"), np.uint8)


def _decode_video(data: bytes) -> list[Pixels]:
    """The video is read twice: to count its frames, as headers may lie, and for those that are wanted."""
    deadline = time.monotonic() + _VIDEO_SECONDS
    try:
        with tempfile.TemporaryDirectory(prefix="frames-") as folder:
            file = Path(folder, "video")
            file.write_bytes(data)
            video = reader.probe(file, longest_s=_LONGEST_S, timeout_s=_VIDEO_SECONDS)
            if video.seconds > _LONGEST_S:
                raise UnreadableError(f"the video is longer than {_LONGEST_S:.0f} s")
            indices, result = frame_indices(video.frames), list[Pixels]()
            parts = reader.frames(file, fit_size(video.width, video.height))
            for number, frame in enumerate(chain.from_iterable(parts)):
                if number in indices:
                    result.append(frame.copy())  # the others go
                if time.monotonic() > deadline:
                    raise UnreadableError(f"the video can't be read in {_VIDEO_SECONDS:.0f} s")
    except VideoError as error:
        raise UnreadableError(str(error)) from error
    if len(result) != len(indices):
        raise UnreadableError(f"the video gave {len(result)} frames instead of {len(indices)}")
    return result
