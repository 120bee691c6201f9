"""Fetchers that stand alone."""

from __future__ import annotations

from serve_app.inputs.fetch import Fetcher, FetchTurns
from serve_app.inputs.url_guard import Resolver, UrlGuard


def fetcher(*allow: str, resolve: Resolver | None = None) -> Fetcher:
    """Its guard opens `allow`, too."""
    return make_fetcher(UrlGuard(allow, resolve))


def make_fetcher(guard: UrlGuard, turns: FetchTurns | None = None) -> Fetcher:
    return Fetcher(guard, turns or FetchTurns())
