"""Which Redis, and under which names."""

from __future__ import annotations

from serve_app.section import Section


class RedisSettings(Section):
    url: str | None = None
    prefix: str = "gen:"
