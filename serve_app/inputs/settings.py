"""Settings of inputs and storage: object store, link lifetimes, fetch rules, size limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from deployments.contract.strict_settings import StrictSettings
from deployments.proxies import ENVIRONMENT, NONE
from serve_app.inputs.geometry import MEGAPIXEL

_PLAIN_OPTIONS: Final = frozenset(
    (
        "region",
        "default_region",
        "endpoint",
        "endpoint_url",
        "bucket",
        "bucket_name",
        "container_name",
        "account_name",
        "virtual_hosted_style_request",
        "skip_signature",
        "allow_http",
        "client_options.allow_http",
    )
)
"""Options of object stores that open no door; every other one is taken for a secret."""
_PROVIDERS: Final = ("aws_", "azure_storage_", "azure_", "google_")


class ObjectSettings(StrictSettings):
    url: str | None = None
    options: dict[str, Any] = {}

    @property
    def plain_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if _is_plain(name)}

    @property
    def secret_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if not _is_plain(name)}


def _is_plain(option: str) -> bool:
    name = option.lower()
    return any(name.removeprefix(provider) in _PLAIN_OPTIONS for provider in ("", *_PROVIDERS))


class LinkSettings(StrictSettings):
    image_life_s: int = Field(default=600, ge=10)
    video_life_s: int = Field(default=3600, ge=10)


class NetworkSettings(StrictSettings):
    allow: list[str] = []
    proxy: Annotated[str, Field(pattern=rf"^({ENVIRONMENT}|{NONE}|https?://[^/?#@]+/?)$")] = ENVIRONMENT
    fetches_per_organization: int = Field(default=32, ge=1)
    fetches_per_origin: int = Field(default=64, ge=1)


class BadImage(ValueError):
    """Not an image the service takes. The message tells the client what was wrong and what would be accepted."""


class BadVideo(ValueError):
    """The same of a video."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """`max_bytes` counts the decoded file; `timeout_s` is the whole time a URL may take, redirects included.

    `cpu_s` is the time of a processor that decoding and writing anew may take.
    """

    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 20 * MEGAPIXEL
    max_redirects: int = 3
    timeout_s: float = 10.0
    cpu_s: int = 10

    def refuse(self, problem: str) -> BadImage:
        """The error for `problem`, with what would be accepted instead."""
        return BadImage(
            f"{problem}; expected a JPEG, PNG or WebP image as base64, a data: URI or an http(s) URL, "
            f"at most {self.max_bytes / 2**20:g} MB and {self.max_pixels / MEGAPIXEL:g} megapixels"
        )


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


IMAGES: Final = ImageLimits()
VIDEOS: Final = VideoLimits()
