"""Fetches what an issuer publishes: the keys that its tokens are signed with."""

from __future__ import annotations

from typing import Any, Final

import httpx2

from serve_app.accounts.bearer import IssuerOutOfReach

_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 256 * 1024


async def fetch(url: str) -> dict[str, Any]:
    """The JSON object at an address of the settings. Raises IssuerOutOfReach."""
    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
            response = await client.get(url)
            response.raise_for_status()
            document = response.json() if len(response.content) <= _MAX_BYTES else None
    except (httpx2.HTTPError, ValueError, RecursionError):
        raise IssuerOutOfReach from None
    if not isinstance(document, dict):
        raise IssuerOutOfReach
    return document
