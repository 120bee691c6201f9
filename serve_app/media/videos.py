"""From the bytes of a client's file to a video that models can work with.

Every video is decoded to its end before it is accepted, so no model ever meets a broken one. The client's own bytes are
kept.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from deployments.video.ffmpeg import VideoError
from deployments.video.reader import probe
from serve_app.media.limits import VIDEOS, VideoLimits


@dataclass(frozen=True, slots=True)
class InputVideo:
    """A video that decodes to its end; `width` and `height` are pixels as it is shown."""

    data: bytes = field(repr=False)
    width: int
    height: int
    content_type: str = "video/mp4"
    extension: str = "mp4"


def read_video(data: bytes, limits: VideoLimits = VIDEOS) -> InputVideo:
    """The video in the bytes of a file. Raises BadVideo."""
    if len(data) > limits.max_bytes:
        raise limits.refuse("the file is too large")
    with tempfile.TemporaryDirectory(prefix="video-") as folder:
        file = Path(folder, "video.mp4")
        file.write_bytes(data)
        try:
            probed = probe(file, longest_s=limits.max_seconds, timeout_s=limits.max_decode_s)
        except VideoError as error:
            raise limits.refuse(str(error)) from None
    if probed.seconds > limits.max_seconds:
        raise limits.refuse("the video is too long")
    sides = (probed.width, probed.height)
    if min(sides) < limits.min_side or max(sides) > limits.max_side:
        raise limits.refuse(f"the video has {probed.width}x{probed.height} pixels")
    return InputVideo(data, probed.width, probed.height)
