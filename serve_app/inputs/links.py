"""Signed links, which expire: results of a local store, uploads, and shared results.

The signature is HMAC-SHA256 over method, path and expiry. Expiry times are rounded up to a multiple of half a life, so
that polls within one such half get the same URL, and clients and caches can reuse the result. A link therefore lives
between the promised time and one and a half times that, rounded up to whole seconds.
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
        """`secret` is shared by all processes of the service. Raises ValueError if it is under 16 bytes."""
        if len(secret) < _MIN_SECRET_BYTES:
            raise ValueError(f"the secret that signs links must have at least {_MIN_SECRET_BYTES} bytes")
        self._secret = secret

    def sign(self, key: str, life_s: float, now: float, *, exact: bool = False, method: str = "GET") -> str:
        """Returns the path and query that open the object `key` for `life_s` seconds.

        Unless `exact`, the expiry is rounded up, as the module says. `now` is epoch seconds.
        """
        life = ceil(life_s)
        step = 1 if exact else max(1, life // 2)
        expires = ceil((now + life) / step) * step
        path = _path(key, method)
        return f"{path}?se={expires}&sig={self._signature(method, path, str(expires))}"

    def verify(self, key: str, se: str, sig: str, now: float, method: str = "GET") -> bool:
        """Returns whether the query parameters `se` and `sig` open `key` at `now` (epoch seconds)."""
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
    """Returns the secret of all processes and restarts. The first call creates it."""
    key = f"{prefix}secret:links"
    # Read first: a full store refuses to write, and a service with a secret must start even then.
    if (secret := await cast(Awaitable[str | None], redis.get(key))) is None:
        await redis.set(key, secrets.token_hex(32), nx=True)
        secret = await cast(Awaitable[str], redis.get(key))
    return bytes.fromhex(secret)


def _path(key: str, method: str) -> str:
    return PREFIXES[method] + quote(key, safe="/", errors="replace")
