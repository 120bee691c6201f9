"""Signed links: each opens a result of a local store, takes an upload, or shows a shared result, until it expires.

The signature is HMAC-SHA256 over method, path and expiry, so neither can be changed. Expiry times lie on a grid of half
a life: polls within one such half get the same URL, which lets clients and caches keep what they have fetched. A link
therefore lives at least the promised time and at most one and a half times that (rounded up to whole seconds).
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Awaitable
from hashlib import sha256
from math import ceil
from typing import Final, cast
from urllib.parse import quote

from redis.asyncio import Redis

PREFIXES: Final = {"GET": "/v1/results/", "PUT": "/v1/uploads/", "SHARE": "/s/"}
_MIN_SECRET_BYTES: Final = 16
_MAX_EXPIRY_DIGITS: Final = 12


class LinkSigner:
    def __init__(self, secret: bytes) -> None:
        """`secret` is shared by all processes that sign or check. Raises ValueError when it is under 16 bytes."""
        if len(secret) < _MIN_SECRET_BYTES:
            raise ValueError(f"the secret that signs links must have at least {_MIN_SECRET_BYTES} bytes")
        self._secret = secret

    def sign(self, key: str, life_s: float, now: float, *, exact: bool = False, method: str = "GET") -> str:
        """The path and query that open the object `key` for `life_s` seconds; or, so that links that are asked for
        again are mostly the same, up to half as long again.

        `now` is epoch seconds. Raises ValueError when the life is not positive.
        """
        if life_s <= 0:
            raise ValueError("the life of a link must be positive")
        life = ceil(life_s)
        step = 1 if exact else max(1, life // 2)
        expires = ceil((now + life) / step) * step
        path = _path(key, method)
        return f"{path}?se={expires}&sig={self._signature(method, path, str(expires))}"

    def verify(self, key: str, se: str, sig: str, now: float, method: str = "GET") -> bool:
        """Whether `se` and `sig`, as they stand in a query, open `key` at `now` (epoch seconds). Never raises."""
        if not (se.isascii() and se.isdigit() and len(se) <= _MAX_EXPIRY_DIGITS):
            return False
        genuine = hmac.compare_digest(
            self._signature(method, _path(key, method), se).encode(), sig.encode(errors="replace")
        )
        return genuine and now < int(se)

    def _signature(self, method: str, path: str, expires: str) -> str:
        digest = hmac.digest(self._secret, f"{method}\n{path}\n{expires}".encode(), sha256)
        return urlsafe_b64encode(digest).rstrip(b"=").decode()


async def get_link_secret(redis: Redis, prefix: str) -> bytes:
    """One secret for all replicas and restarts: the first to ask makes it."""
    key = f"{prefix}secret:links"
    # Read first: a store that is full refuses to be asked to write, and a start then must not fail.
    if (secret := await cast(Awaitable[str | None], redis.get(key))) is None:
        await redis.set(key, secrets.token_hex(32), nx=True)
        secret = await cast(Awaitable[str], redis.get(key))
    return bytes.fromhex(secret)


def _path(key: str, method: str) -> str:
    return PREFIXES[method] + quote(key, safe="/", errors="replace")
