"""The one gate for videos that clients send: base64, a `data:` URI or an http(s) URL in, a checked video out.

Every video is decoded to its end before it is accepted, so no model ever meets a broken one. The client's own bytes are
kept.
"""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deployments.video.ffmpeg import VideoError
from deployments.video.reader import probe
from serve_app.media.fetching import Fetcher, decode_base64, is_url

_READERS: Final = ThreadPoolExecutor(2, thread_name_prefix="videos")
"""Decoding takes seconds: apart from all other work, of which it would take the threads and the processors."""


class BadVideo(ValueError):
    """Not a video the service takes. The message tells the client what was wrong and what would be accepted."""


@dataclass(frozen=True, slots=True)
class VideoLimits:
    """`max_bytes` counts the decoded file; `timeout_s` is the whole time a URL may take, redirects included.

    Sides are in pixels, as the video is shown. `max_decode_s` is the time its frames may take to decode.
    """

    max_bytes: int = 50 * 1024 * 1024
    max_seconds: float = 20.0
    min_side: int = 64
    max_side: int = 4096
    max_redirects: int = 3
    timeout_s: float = 30.0
    max_decode_s: float = 60.0

    def refuse(self, problem: str) -> BadVideo:
        """The error for `problem`, with what would be accepted instead."""
        return BadVideo(
            f"{problem}; expected an mp4 video (H.264 or another common codec) as base64, a data: URI or an http(s) "
            f"URL, at most {self.max_bytes / 2**20:g} MB, from 1/24 s to {self.max_seconds:g} s long, "
            f"with sides from {self.min_side} to {self.max_side} pixels"
        )


DEFAULT_LIMITS: Final = VideoLimits()


@dataclass(frozen=True, slots=True)
class InputVideo:
    """A video that decodes to its end; `width` and `height` are pixels as it is shown."""

    data: bytes = field(repr=False)
    width: int
    height: int
    content_type: str = "video/mp4"
    extension: str = "mp4"


async def load_video(value: str, fetcher: Fetcher, limits: VideoLimits = DEFAULT_LIMITS) -> InputVideo:
    """The video behind `value`, base64, `data:` URI or URL. Decoding runs in a thread.

    Raises BadVideo, or TooManyFetches.
    """
    value = value.strip()
    if is_url(value):
        data = await fetcher.fetch(value, limits)
    else:
        data = await asyncio.to_thread(decode_base64, value, limits)
    return await asyncio.get_running_loop().run_in_executor(_READERS, read_video, data, limits)


def read_video(data: bytes, limits: VideoLimits = DEFAULT_LIMITS) -> InputVideo:
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
