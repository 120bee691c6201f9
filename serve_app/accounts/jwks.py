"""Fetches what an issuer publishes: the keys that its tokens are signed with."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import httpx2

from serve_app.accounts.bearer import IssuerOutOfReach

_TIMEOUT_S: Final = 5.0
"""For the whole answer: everyone with a token of this issuer waits for it."""
_MAX_BYTES: Final = 256 * 1024


async def fetch(url: str) -> dict[str, Any]:
    """The JSON object at an address of the settings. Raises IssuerOutOfReach."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            document = json.loads(await _body(url))
    except (httpx2.HTTPError, TimeoutError, ValueError, RecursionError):
        raise IssuerOutOfReach from None
    if not isinstance(document, dict):
        raise IssuerOutOfReach
    return document


async def _body(url: str) -> bytes:
    """As it comes: what is packed may be large inside."""
    async with (
        httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client,
        client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
    ):
        response.raise_for_status()
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise IssuerOutOfReach
    return bytes(body)
