"""Where pictures and videos are kept, how long links to them live, and what may be fetched."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from serve_app.section import Section

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


class ObjectSettings(Section):
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


class LinkSettings(Section):
    image_life_s: int = Field(default=600, ge=10)
    video_life_s: int = Field(default=3600, ge=10)


class NetworkSettings(Section):
    allow: list[str] = []
    fetches_per_organization: int = Field(default=32, ge=1)
    fetches_per_origin: int = Field(default=64, ge=1)
