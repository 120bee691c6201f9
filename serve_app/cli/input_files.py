"""Local pictures and videos that a request sends, looked at first: what is wrong with them costs no upload."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path

from serve_app.media.limits import PICTURES, VIDEOS

VIDEO_FIELD = "start_video"


def takes_files(field: str) -> bool:
    """Whether a field of this name holds a picture, pictures or a video, on any endpoint."""
    return field in _picture_fields() or field == VIDEO_FIELD


def encoded(field: str, file: Path) -> str:
    """The file in base64, for this field. Raises ValueError for what the service would refuse at the first look."""
    if not file.is_file():
        raise ValueError(f"{field}: no such file: {file}")
    is_video = field == VIDEO_FIELD
    limits, wanted = (VIDEOS, "an mp4 video") if is_video else (PICTURES, "a JPEG, PNG or WebP picture")
    if (size := file.stat().st_size) > limits.max_bytes:
        raise ValueError(
            f"{field}: {file} has {size / 2**20:.1f} MB; at most {limits.max_bytes / 2**20:g} MB are taken"
        )
    data = file.read_bytes()
    if not (_is_mp4(data) if is_video else _is_picture(data)):
        raise ValueError(f"{field}: {file} is not {wanted}")
    return base64.b64encode(data).decode()


@cache
def _picture_fields() -> frozenset[str]:
    from serve_app.requests import REQUESTS  # here: it takes half a second, and few commands need it

    return frozenset(name for form in REQUESTS.values() for name in form.image_fields) | {"keyframes"}


def _is_picture(data: bytes) -> bool:
    return data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (data[:4], data[8:12]) == (b"RIFF", b"WEBP")


def _is_mp4(data: bytes) -> bool:
    return data[4:8] == b"ftyp"
