"""Settings of inputs and storage: object store, link lifetimes, fetch rules, size limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
"""Object store options that are not secret; every other one counts as a secret."""
_PROVIDERS: Final = ("aws_", "azure_storage_", "azure_", "google_")


class ObjectSettings(StrictSettings):
    url: str | None = None
    """file:///path, s3://bucket/prefix, gs://… or az://…. null: <data_dir>/objects."""
    options: dict[str, Any] = {}
    """Options of the store: credentials, region, endpoint."""

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
    """Seconds that a link to an image is valid."""
    video_life_s: int = Field(default=3600, ge=10)
    """Seconds that a link to a video or draft is valid."""


class NetworkSettings(StrictSettings):
    proxy: Annotated[str, Field(pattern=rf"^({ENVIRONMENT}|{NONE}|https?://[^/?#@]+/?)$")] = ENVIRONMENT
    """environment: as http_proxy, https_proxy and no_proxy say; none; or a proxy's URL without credentials. Private
    addresses and names are always called directly."""
    allow: list[str] = []
    """Private hosts or networks that webhook and image URLs may reach. Leave it empty in production: it opens
    services of this machine and its network."""
    fetches_per_organization: int = Field(default=32, ge=1)
    """Concurrent downloads of an organization by an ingress replica; others wait up to 30 s."""
    fetches_per_origin: int = Field(default=64, ge=1)
    """Concurrent downloads from one host and port, for all organizations."""


class BadImage(ValueError):
    """An image that the service rejects. The message names the fault and the accepted values."""


class BadVideo(ValueError):
    """A video that the service rejects. The message names the fault and the accepted values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits(ABC):
    max_bytes: int
    """Size of the decoded file."""
    max_redirects: int = 3
    timeout_s: float
    """Seconds to fetch a URL, with redirects and without the wait for a slot."""

    @abstractmethod
    def refuse(self, problem: str) -> ValueError:
        """Returns the error for `problem`, which names the formats and sizes that are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits(FileLimits):
    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 20 * MEGAPIXEL
    timeout_s: float = 10.0
    cpu_s: int = 10
    """CPU seconds to decode and re-encode it."""

    def refuse(self, problem: str) -> BadImage:
        return BadImage(
            f"{problem}; expected a JPEG, PNG or WebP image as base64, a data: URI or an http(s) URL, "
            f"at most {self.max_bytes / 2**20:g} MB and {self.max_pixels / MEGAPIXEL:g} megapixels"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoLimits(FileLimits):
    max_bytes: int = 50 * 1024 * 1024
    max_seconds: float = 20.0
    min_side: int = 64
    """Pixels, as the video is shown."""
    max_side: int = 4096
    timeout_s: float = 30.0
    max_decode_s: float = 60.0
    """Seconds to decode its frames."""

    def refuse(self, problem: str) -> BadVideo:
        return BadVideo(
            f"{problem}; expected an mp4 video (H.264 or another common codec) as base64, a data: URI or an http(s) "
            f"URL, at most {self.max_bytes / 2**20:g} MB, from 1/24 s to {self.max_seconds:g} s long, "
            f"with sides from {self.min_side} to {self.max_side} pixels"
        )


IMAGES: Final = ImageLimits()
VIDEOS: Final = VideoLimits()
