"""Encoding of results into files, and their storage below the job's prefix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import cv2
from obstore.exceptions import BaseError

from deployments.backend import Unavailable
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output, PictureFormat
from deployments.contract.objects import ObjectStore
from deployments.images import Pixels, resize

# PNG at OpenCV's default, its fastest level: higher ones take several times as long for a few percent.
_ENCODER_OPTIONS: dict[PictureFormat, list[int]] = {
    "jpeg": [cv2.IMWRITE_JPEG_QUALITY, 95],
    "png": [],
    "webp": [cv2.IMWRITE_WEBP_QUALITY, 90],
}
_THUMBNAIL_SIDE: Final = 256
"""Of the longer side, in pixels."""
_PREVIEW_OPTIONS = [cv2.IMWRITE_JPEG_QUALITY, 80]


def encode_picture(pixels: Pixels, format: PictureFormat) -> tuple[bytes, str, str]:
    """(H, W, 3) RGB or (H, W, 4) RGBA to the bytes of a file, its content type, and its extension without a dot.

    JPEG has no transparency: RGBA in it is a ValueError.
    """
    if pixels.shape[2] == 4 and format == "jpeg":
        raise ValueError("JPEG can't be transparent")
    return _encoded(pixels, f".{format}", _ENCODER_OPTIONS[format]), f"image/{format}", format


class Outputs:
    """Writes below the job's own prefix only, so that attempts never touch each other's results.

    Every method raises Unavailable when the store is out of reach.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def store_picture(self, job: GenerationJob, pixels: Pixels) -> Output:
        """The finished picture, in the job's format, as `picture.EXTENSION`."""
        assert job.output_format != "mp4", "a picture for a job of a video"
        data, content_type, extension = encode_picture(pixels, job.output_format)
        key = f"{job.output_prefix}/picture.{extension}"
        self._put(key, data, content_type)
        height, width = pixels.shape[:2]
        thumbnail = self._store_thumbnail(job, pixels)
        return Output(
            key=key, content_type=content_type, width=width, height=height, size=len(data), thumbnail=thumbnail
        )

    def store_clip(self, job: GenerationJob, file: Path, latents: bytes | None, still: Pixels) -> Output:
        """The finished video, as `clip.mp4`; beside it, for a draft, its latents as `draft.safetensors`.

        `still` is the frame that stands for it.
        """
        key, draft = f"{job.output_prefix}/clip.mp4", None
        if latents is not None:
            draft = f"{job.output_prefix}/draft.safetensors"
            self._put(draft, latents, "application/octet-stream")
        with _reached():
            self._store.put_file_blocking(key, file, "video/mp4")
        return Output(
            key=key,
            content_type="video/mp4",
            width=job.width,
            height=job.height,
            size=file.stat().st_size,
            draft=draft,
            thumbnail=self._store_thumbnail(job, still),
        )

    def store_preview(self, job: GenerationJob, pixels: Pixels, step: int, steps: int | None = None) -> Preview:
        """A small picture of the job after `step` of `steps` (the job's, if not said), as `preview-STEP.jpeg`."""
        key = f"{job.output_prefix}/preview-{step}.jpeg"
        self._put(key, _encoded(pixels, ".jpeg", _PREVIEW_OPTIONS), "image/jpeg")
        return Preview(key=key, step=step, steps=job.steps if steps is None else steps)

    def _store_thumbnail(self, job: GenerationJob, pixels: Pixels) -> str:
        """The picture made small, as `thumbnail.jpeg`, or as PNG where it is transparent. Returns its key."""
        height, width = pixels.shape[:2]
        share = min(1.0, _THUMBNAIL_SIDE / max(height, width))
        small = resize(pixels, max(1, round(width * share)), max(1, round(height * share)))
        extension, options = ("png", []) if pixels.shape[2] == 4 else ("jpeg", _PREVIEW_OPTIONS)
        key = f"{job.output_prefix}/thumbnail.{extension}"
        self._put(key, _encoded(small, f".{extension}", options), f"image/{extension}")
        return key

    def _put(self, key: str, data: bytes, content_type: str) -> None:
        with _reached():
            self._store.put_blocking(key, data, content_type)


@contextmanager
def _reached() -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        raise Unavailable(str(error)) from error


def _encoded(pixels: Pixels, suffix: str, options: list[int]) -> bytes:
    order = cv2.COLOR_RGBA2BGRA if pixels.shape[2] == 4 else cv2.COLOR_RGB2BGR
    done, data = cv2.imencode(suffix, cv2.cvtColor(pixels, order), options)
    if not done:
        raise RuntimeError(f"a picture of {pixels.shape[1]} x {pixels.shape[0]} could not be written as {suffix}")
    return data.tobytes()
