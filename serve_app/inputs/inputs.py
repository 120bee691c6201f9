"""The gate of input files: base64, a `data:` URI or a URL in, a checked image or video out.

Nothing of what was sent is decoded in this process, and no organization keeps others waiting: images are decoded, and
written anew, by processes that may be lost (`decoders.py`), videos are read by ffmpeg (`videos.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from deployments.video.reader import probe
from deployments.video.writer import VideoFileError
from serve_app.inputs.decoders import Decoders, FairThreads
from serve_app.inputs.fetch import Fetcher, FetchTurns, FileLimits, hold, is_url
from serve_app.inputs.images import InputImage, Unreadable
from serve_app.inputs.settings import IMAGES, VIDEOS, ImageLimits, VideoLimits
from serve_app.inputs.url_guard import UrlGuard


@dataclass(frozen=True, slots=True)
class InputVideo:
    """A video that decodes to its end; `width` and `height` are pixels as it is shown."""

    data: bytes = field(repr=False)
    width: int
    height: int
    seconds: float
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
            info = probe(file, max_s=limits.max_seconds, timeout_s=limits.max_decode_s)
        except VideoFileError as error:
            raise limits.refuse(str(error)) from None
    if info.seconds > limits.max_seconds:
        raise limits.refuse("the video is too long")
    sides = (info.width, info.height)
    if min(sides) < limits.min_side or max(sides) > limits.max_side:
        raise limits.refuse(f"the video has {info.width}x{info.height} pixels")
    return InputVideo(data, info.width, info.height, info.seconds)


T = TypeVar("T")

_VIDEOS_AT_A_TIME: Final = 2
_PREPARATIONS_AT_A_TIME: Final = 2


class Inputs:
    """For one event loop. `owner` is whoever shares nothing with others: an organization."""

    def __init__(
        self, guard: UrlGuard, decoders: int | None, turns: FetchTurns | None = None, about: str | None = None
    ) -> None:
        """`decoders` is as in Decoders; `turns` has its defaults unless it is given;
        `about` is as in Fetcher."""
        self._fetcher = Fetcher(guard, turns or FetchTurns(), about)
        self._decoders = Decoders(decoders)
        self._videos = FairThreads(_VIDEOS_AT_A_TIME, 1, "videos")
        self._preparing = FairThreads(_PREPARATIONS_AT_A_TIME, 1, "preparing")

    async def image(self, value: str | bytes, owner: str, limits: ImageLimits = IMAGES) -> InputImage:
        """The image in a file, or behind base64, a `data:` URI or a URL. Raises BadImage, or TooManyFetches."""
        file = await self._fetch(value, owner, limits)
        try:
            image = await self._decoders.image(file, owner, limits)
        except Unreadable as problem:
            raise limits.refuse(str(problem)) from None
        if isinstance(file, bytes):
            hold.get()(len(image.data))
        return image

    async def video(self, value: str | bytes, owner: str, limits: VideoLimits = VIDEOS) -> InputVideo:
        """The video in a file, or behind base64, a `data:` URI or a URL. Raises BadVideo, or TooManyFetches."""
        data = await self._fetch(value, owner, limits)
        if isinstance(data, str):
            try:
                data = await self._decoders.base64(data, owner, limits.max_bytes)
            except Unreadable as problem:
                raise limits.refuse(str(problem)) from None
        return await self._videos.run(owner, lambda: read_video(data, limits))

    async def _fetch(self, value: str | bytes, owner: str, limits: FileLimits) -> str | bytes:
        """The file; text that is no URL as it is."""
        if isinstance(value, bytes) or not is_url(value.strip()):
            return value if isinstance(value, bytes) else value.strip()
        return await self._fetcher.fetch(value.strip(), owner, limits)

    async def prepare(self, owner: str, work: Callable[[], T]) -> T:
        """What `work` makes of images that came through here, in a thread."""
        return await self._preparing.run(owner, work)

    def close(self) -> None:
        """Waits for nothing that is under way."""
        self._decoders.close()
        for threads in (self._videos, self._preparing):
            threads.close()
