"""Images for classifiers, from stored images and videos.

A still gives one image, an animation evenly spread frames, and a video about one frame per second, including the first
and last, of the frames that models get. Shorter scenes may be missed, and sound and subtitles are ignored. A file that
can't be read to its end gives nothing, as it was not moderated.
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
from deployments.video.writer import MAX_SAMPLES, VideoFileError, fit_size, frame_indices, shrink

_IMAGE_TIMEOUT_S = 60.0
"""Seconds to read one animation, as hostile ones are small and take forever."""
_VIDEO_TIMEOUT_S = 110.0
"""Seconds to read one video twice; the service accepts those that it reads once within a minute."""
_MAX_VIDEO_S = reader.MAX_VIDEO_S
_VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov")


class UnreadableError(Exception):
    """The data is no image or video that can be read to its end."""


def decode_images(data: bytes, content_type_or_key: str) -> list[Pixels]:
    """Returns at least one image, in order. Raises UnreadableError."""
    if is_video(content_type_or_key):
        return _decode_video(data)
    return _decode_image(data)


def is_video(content_type_or_key: str) -> bool:
    name = content_type_or_key.partition(";")[0].strip().lower()
    return name.startswith("video/") or name.endswith(_VIDEO_SUFFIXES)


def _decode_image(data: bytes) -> list[Pixels]:
    deadline = time.monotonic() + _IMAGE_TIMEOUT_S
    try:
        with Image.open(io.BytesIO(data)) as image:
            count = getattr(image, "n_frames", 1)
            if count == 1:
                return [_to_rgb(image)]
            frames = []
            for index in np.unique(np.linspace(0, count - 1, min(count, MAX_SAMPLES)).round().astype(int)):
                image.seek(int(index))
                frames.append(shrink(_to_rgb(image)))
                if time.monotonic() > deadline:
                    raise UnreadableError(f"the animation can't be read in {_IMAGE_TIMEOUT_S:.0f} s")
            return frames
    except UnreadableError:
        raise
    except Exception as error:  # Pillow's decoders raise any type
        raise UnreadableError(f"no image that can be read: {error}") from error


def _to_rgb(image: Image.Image) -> Pixels:
    """Converts an image to what viewers show: upright, with transparent parts on white."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow would clip these at 255, so that almost everything is white
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
    if image.mode in ("I", "F"):
        raise UnreadableError("its pixels are numbers without a defined white")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"), np.uint8)


def _decode_video(data: bytes) -> list[Pixels]:
    """Reads the video twice: to count its frames, as headers may lie, and to pick some of them."""
    deadline = time.monotonic() + _VIDEO_TIMEOUT_S
    try:
        with tempfile.TemporaryDirectory(prefix="frames-") as folder:
            file = Path(folder, "video")
            file.write_bytes(data)
            video = reader.probe(file, max_s=_MAX_VIDEO_S, timeout_s=_VIDEO_TIMEOUT_S)
            if video.seconds > _MAX_VIDEO_S:
                raise UnreadableError(f"the video is longer than {_MAX_VIDEO_S:.0f} s")
            indices, result = frame_indices(video.frames), list[Pixels]()
            parts = reader.frames(file, fit_size(video.width, video.height))
            for number, frame in enumerate(chain.from_iterable(parts)):
                if number in indices:
                    result.append(frame.copy())  # a view would keep all frames in memory
                if time.monotonic() > deadline:
                    raise UnreadableError(f"the video can't be read in {_VIDEO_TIMEOUT_S:.0f} s")
    except VideoFileError as error:
        raise UnreadableError(str(error)) from error
    if len(result) != len(indices):
        raise UnreadableError(f"the video gave {len(result)} frames instead of {len(indices)}")
    return result
