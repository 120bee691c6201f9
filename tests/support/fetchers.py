"""Fetchers of input files without a service."""

from __future__ import annotations

from serve_app.inputs.fetch import FetchLimiter, UrlFetcher
from serve_app.inputs.resolver import Resolver
from serve_app.inputs.ssrf import UrlGuard


def fetcher(*allow: str, resolve: Resolver | None = None) -> UrlFetcher:
    """Returns a fetcher that may also reach the addresses in `allow`."""
    return make_fetcher(UrlGuard(allow, resolve))


def make_fetcher(guard: UrlGuard, limiter: FetchLimiter | None = None) -> UrlFetcher:
    return UrlFetcher(guard, limiter or FetchLimiter())
