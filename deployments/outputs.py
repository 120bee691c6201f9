"""Encoding of results, and their storage below the job's prefix."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import cv2
from obstore.exceptions import BaseError
from PIL import Image

from deployments.backend import Unavailable
from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output, media_type, preview_key
from deployments.contract.objects import ObjectStore
from deployments.contract.request import ImageFormat
from deployments.images import Pixels
from deployments.video.writer import shrink

# PNG at OpenCV's default level, the fastest: higher ones take several times as long for a few percent.
_ENCODER_OPTIONS: dict[ImageFormat, list[int]] = {
    "jpeg": [cv2.IMWRITE_JPEG_QUALITY, 95],
    "png": [],
    "webp": [cv2.IMWRITE_WEBP_QUALITY, 90],
}
_PREVIEW_OPTIONS = [cv2.IMWRITE_JPEG_QUALITY, 80]
_PROXY_QUALITY: Final = 90
_PROXY_OPTIONS = [cv2.IMWRITE_JPEG_QUALITY, _PROXY_QUALITY]
_UPLOADS: Final = 32
"""Uploads at a time, beside those in the callers' threads."""


def encode_image(pixels: Pixels, format: ImageFormat) -> tuple[bytes, str, str]:
    """Encodes (H, W, 3) RGB or (H, W, 4) RGBA. Returns the bytes, content type, and extension without a dot.

    Raises ValueError for a transparent JPEG.
    """
    if pixels.shape[2] == 4 and format == "jpeg":
        raise ValueError("JPEG can't be transparent")
    return _encode(pixels, f".{format}", _ENCODER_OPTIONS[format]), f"image/{format}", format


class Outputs:
    """Stores results below the job's own prefix, so that attempts never touch each other's.

    Every method raises Unavailable if the store can't be reached.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._uploads = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="uploads")

    def store_image(
        self, job: GenerationJob, pixels: Pixels, number: int = 1, original: tuple[bytes, ImageFormat] | None = None
    ) -> Output:
        """Stores the finished image in the job's format as `image.EXTENSION`, or `original`, the same image as a file.

        `number` counts the results of a workflow; those after the first are named `image-2.EXTENSION` and so on.
        """
        small = self._uploads.submit(self._store_thumbnail, job, pixels, number)
        if original is not None:
            data, extension = original
            content_type = f"image/{extension}"
        else:
            image_format = job.request.output_format
            assert image_format not in ("mp4", "original"), "an image for a job of a video"
            data, content_type, extension = encode_image(pixels, image_format)
        key = f"{job.output_prefix}/{_numbered('image', number)}.{extension}"
        self._put(key, data, content_type)
        height, width = pixels.shape[:2]
        thumbnail = small.result()
        return Output(key, content_type, width, height, len(data), thumbnail=thumbnail, proxy=thumbnail)

    def store_video(self, job: GenerationJob, file: Path, latents: bytes | None, samples: Sequence[Pixels]) -> Output:
        """Stores the finished video as `video.mp4`, `samples` of its frames as `frames.tiff`, the first of them as the
        thumbnail, and the latents of a draft as `draft.safetensors`."""
        draft = f"{job.output_prefix}/draft.safetensors" if latents is not None else None
        if latents is not None and draft is not None:
            self._put(draft, latents, "application/octet-stream")
        output = self.store_file(job, file, ".mp4", samples)
        return replace(output, width=job.request.width, height=job.request.height, draft=draft)

    def store_file(
        self, job: GenerationJob, file: Path, suffix: str, samples: Sequence[Pixels], number: int = 1
    ) -> Output:
        """Stores a file as it is, named by its type and `suffix`, such as `video.mp4`. `samples` of its frames, if
        it has any, are stored as `frames.tiff`, and the first of them as the thumbnail. `number`: as for images."""
        uploads = list[Future[str]]()
        if samples:
            uploads.append(self._uploads.submit(self._store_thumbnail, job, samples[0], number))
            uploads.append(self._uploads.submit(self._store_samples, job, samples, number))
        content_type = media_type(f"file{suffix}")
        key = f"{job.output_prefix}/{_numbered(content_type.partition('/')[0], number)}{suffix}"
        with _translate_store_errors():
            self._store.put_file_blocking(key, file, content_type)
        height, width = samples[0].shape[:2] if samples else (0, 0)
        thumbnail, proxy = [each.result() for each in uploads] or (None, None)
        return Output(key, content_type, width, height, file.stat().st_size, thumbnail=thumbnail, proxy=proxy)

    def store_preview(self, job: GenerationJob, pixels: Pixels, step: int, steps: int | None = None) -> Preview:
        """Stores a small image of the job after `step` of `steps`, by default the job's, as `preview-STEP.jpeg`."""
        key = preview_key(job.output_prefix, step)
        self._put(key, _encode(pixels, ".jpeg", _PREVIEW_OPTIONS), "image/jpeg")
        return Preview(key=key, step=step, steps=job.request.steps if steps is None else steps)

    def _store_thumbnail(self, job: GenerationJob, pixels: Pixels, number: int) -> str:
        """Stores a small copy as `thumbnail.jpeg`, or as PNG if it is transparent. Returns its key."""
        extension, options = ("png", []) if pixels.shape[2] == 4 else ("jpeg", _PROXY_OPTIONS)
        data = _encode(shrink(pixels), f".{extension}", options)
        name = _numbered("thumbnail", number)
        return self._put(f"{job.output_prefix}/{name}.{extension}", data, f"image/{extension}")

    def _store_samples(self, job: GenerationJob, samples: Sequence[Pixels], number: int) -> str:
        """Stores the samples as pages of a JPEG-compressed TIFF. Returns its key."""
        first, *others = map(Image.fromarray, samples)
        buffer = io.BytesIO()
        first.save(buffer, "TIFF", save_all=True, append_images=others, compression="jpeg", quality=_PROXY_QUALITY)
        return self._put(f"{job.output_prefix}/{_numbered('frames', number)}.tiff", buffer.getvalue(), "image/tiff")

    def _put(self, key: str, data: bytes, content_type: str) -> str:
        with _translate_store_errors():
            self._store.put_blocking(key, data, content_type)
        return key


@contextmanager
def _translate_store_errors() -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        raise Unavailable(str(error)) from error


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _encode(pixels: Pixels, suffix: str, options: list[int]) -> bytes:
    order = cv2.COLOR_RGBA2BGRA if pixels.shape[2] == 4 else cv2.COLOR_RGB2BGR
    done, data = cv2.imencode(suffix, cv2.cvtColor(pixels, order), options)
    if not done:
        raise RuntimeError(f"an image of {pixels.shape[1]} x {pixels.shape[0]} could not be written as {suffix}")
    return data.tobytes()
