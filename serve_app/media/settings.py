"""Where pictures and videos are kept, how long links to them live, and what may be fetched."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from serve_app.section import Section


class ObjectSettings(Section):
    url: str | None = None
    options: dict[str, Any] = {}


class LinkSettings(Section):
    image_life_s: int = Field(default=600, ge=10)
    video_life_s: int = Field(default=3600, ge=10)


class NetworkSettings(Section):
    allow: list[str] = []
    fetches_per_organization: int = Field(default=32, ge=1)
    fetches_per_origin: int = Field(default=64, ge=1)
