"""Loader of input files: takes a file, base64, a `data:` URI or a URL and returns a checked image or video.

This process decodes no file of a client. Images are decoded and encoded again by processes that may be lost
(`decoders.py`), videos are read by ffmpeg. Organizations take turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from deployments.video.reader import probe
from deployments.video.writer import VideoFileError
from serve_app.inputs.decoders import Decoders, FairThreadPool
from serve_app.inputs.fetch import FetchLimiter, FileLimits, UrlFetcher, is_url, reserve_memory
from serve_app.inputs.images import InputImage, InvalidFile
from serve_app.inputs.settings import IMAGES, VIDEOS, ImageLimits, VideoLimits
from serve_app.inputs.ssrf import UrlGuard


@dataclass(frozen=True, slots=True)
class InputVideo:
    """Video that was decoded to its end; `width` and `height` are pixels as it is shown."""

    data: bytes = field(repr=False)
    width: int
    height: int
    seconds: float
    content_type: str = "video/mp4"
    extension: str = "mp4"


def read_video(data: bytes, limits: VideoLimits = VIDEOS) -> InputVideo:
    """Raises BadVideo."""
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

_VIDEO_THREADS: Final = 2
_PREPARATION_THREADS: Final = 2


class Inputs:
    """Inputs of one event loop. The `owner` of each is an organization."""

    def __init__(
        self,
        guard: UrlGuard,
        decoders: int | None,
        limiter: FetchLimiter | None = None,
        service_url: str | None = None,
    ) -> None:
        """`decoders` is the number of processes of `Decoders`."""
        self._fetcher = UrlFetcher(guard, limiter or FetchLimiter(), service_url)
        self._decoders = Decoders(decoders)
        self._videos = FairThreadPool(_VIDEO_THREADS, 1, "videos")
        self._preparations = FairThreadPool(_PREPARATION_THREADS, 1, "preparations")

    async def image(self, value: str | bytes, owner: str, limits: ImageLimits = IMAGES) -> InputImage:
        """Loads an image from a file, base64, a `data:` URI or a URL. Raises BadImage or TooManyFetches."""
        file = await self._fetch(value, owner, limits)
        try:
            image = await self._decoders.image(file, owner, limits)
        except InvalidFile as problem:
            raise limits.refuse(str(problem)) from None
        if isinstance(file, bytes):
            reserve_memory.get()(len(image.data))
        return image

    async def video(self, value: str | bytes, owner: str, limits: VideoLimits = VIDEOS) -> InputVideo:
        """Loads a video from a file, base64, a `data:` URI or a URL. Raises BadVideo or TooManyFetches."""
        data = await self._fetch(value, owner, limits)
        if isinstance(data, str):
            try:
                data = await self._decoders.base64(data, owner, limits.max_bytes)
            except InvalidFile as problem:
                raise limits.refuse(str(problem)) from None
        return await self._videos.run(owner, lambda: read_video(data, limits))

    async def _fetch(self, value: str | bytes, owner: str, limits: FileLimits) -> str | bytes:
        """Returns the file behind a URL, and any other value unchanged."""
        if isinstance(value, bytes):
            return value
        text = value.strip()
        return await self._fetcher.fetch(text, owner, limits) if is_url(text) else text

    async def prepare(self, owner: str, work: Callable[[], T]) -> T:
        """Runs `work`, which prepares loaded images, in a thread."""
        return await self._preparations.run(owner, work)

    def close(self) -> None:
        """Does not wait for running work."""
        for pool in (self._decoders, self._videos, self._preparations):
            pool.close()
