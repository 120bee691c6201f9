"""OpenID Connect sign-in, by authorization code with PKCE.

| key | kind | holds |
|---|---|---|
| `gen:signing-in:{sha256}` | string | JSON of a `_PendingSignIn`, by state; expires after `SIGN_IN_LIFE_S` |
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable
from typing import Any, Final, cast

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from cachetools import TTLCache
from pydantic import BaseModel
from redis.asyncio import Redis

from deployments.proxies import proxy_for
from serve_app.accounts.attempt_limiter import AttemptLimiter
from serve_app.accounts.jwt_auth import (
    KEYS_LIVE_S,
    FetchKeys,
    IssuerUnreachable,
    PublishedKeys,
    TokenRefused,
    verify_claims,
)
from serve_app.accounts.names import fold_name
from serve_app.accounts.settings import OpenIdSettings, without_slash

logger = logging.getLogger(__name__)

SIGN_IN_LIFE_S: Final = 600
MAX_SIGN_INS: Final = 100
"""Maximum of sign-ins from one address in `attempt_limiter.WINDOW_S`."""
MAX_SIGN_INS_ANYWHERE: Final = 1000
"""Maximum if addresses are unknown."""
_TIMEOUT_S: Final = 10.0
_SKEW_S: Final = 30.0
_BASIC: Final = "client_secret_basic"
_POST: Final = "client_secret_post"


class _PendingSignIn(BaseModel):
    verifier: str
    nonce: str
    to: str


class SignInRefused(Exception):
    """The provider refused the sign-in, or its token does not prove a name."""


class OpenId:
    def __init__(self, redis: Redis, prefix: str, settings: OpenIdSettings, fetch: FetchKeys) -> None:
        self.issuer = settings.issuer
        self._redis, self._prefix = redis, prefix
        self._settings = settings
        self._fetch = fetch
        self._limiter = AttemptLimiter(redis, prefix)
        self._keys: PublishedKeys | None = None
        self._configuration_cache: TTLCache[str, dict[str, Any]] = TTLCache(1, KEYS_LIVE_S, timer=time.monotonic)

    async def begin(self, callback: str, to: str, address: str) -> tuple[str, str]:
        """Returns the provider's URL to send the browser to, and the state with which it returns to `callback`.

        Raises IssuerUnreachable or TooManyAttempts.
        """
        await self._limiter.count(f"openid from:{address}", MAX_SIGN_INS if address else MAX_SIGN_INS_ANYWHERE)
        configuration = await self._configuration()
        state = secrets.token_urlsafe(32)
        pending = _PendingSignIn(verifier=secrets.token_urlsafe(48), nonce=secrets.token_urlsafe(16), to=to)
        await self._redis.set(self._key(state), pending.model_dump_json(), ex=SIGN_IN_LIFE_S)
        async with self._client(callback, configuration) as client:
            url, _ = client.create_authorization_url(
                configuration["authorization_endpoint"],
                state=state,
                code_verifier=pending.verifier,
                nonce=pending.nonce,
            )
        return url, state

    async def finish(self, callback: str, state: str, code: str) -> tuple[str, str]:
        """Returns the person's name and the `to` of `begin`. Raises SignInRefused or IssuerUnreachable."""
        raw = await cast(Awaitable[str | None], self._redis.getdel(self._key(state)))
        if raw is None:
            raise SignInRefused
        pending = _PendingSignIn.model_validate_json(raw)
        configuration = await self._configuration()
        try:
            async with self._client(callback, configuration) as client:
                tokens = await client.fetch_token(
                    configuration["token_endpoint"],
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=pending.verifier,
                )
        except OAuthError:
            raise SignInRefused from None
        except httpx2.HTTPError:
            raise IssuerUnreachable from None
        return await self._name(tokens, configuration, pending.nonce), pending.to

    async def _name(self, tokens: dict[str, Any], configuration: dict[str, Any], nonce: str) -> str:
        self._keys = self._keys or PublishedKeys(configuration["jwks_uri"], self._fetch)
        try:
            token = str(tokens.get("id_token", ""))
            claims = await verify_claims(token, self._keys, configuration["issuer"], self._settings.client_id, _SKEW_S)
        except TokenRefused:
            raise SignInRefused from None
        settings, name = self._settings, claims.get(self._settings.name_claim)
        is_verified = claims.get("email_verified") in (True, "true")  # some providers send text
        is_proven = settings.name_claim != "email" or settings.trust_email or is_verified
        if claims.get("nonce") != nonce or not isinstance(name, str) or not name or not is_proven:
            raise SignInRefused
        return fold_name(name)

    async def _configuration(self) -> dict[str, Any]:
        """Returns the provider's metadata (OpenID Connect Discovery)."""
        if document := self._configuration_cache.get(self.issuer):
            return document
        address = f"{without_slash(self.issuer)}/.well-known/openid-configuration"
        configuration = await self._fetch(address)
        fields = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        is_own = without_slash(str(configuration.get("issuer"))) == without_slash(self.issuer)
        if not is_own or not all(configuration.get(each) for each in fields):
            logger.warning("%s does not describe the issuer %s", address, self.issuer)
            raise IssuerUnreachable
        self._configuration_cache[self.issuer] = configuration
        return configuration

    def _client(self, callback: str, configuration: dict[str, Any]) -> Any:
        """Returns an `AsyncOAuth2Client`. Authlib loses the type of its base, httpx2.AsyncClient."""
        settings, secret = self._settings, self._settings.client_secret
        # OpenID Connect Discovery: client_secret_basic is the default.
        methods = configuration.get("token_endpoint_auth_methods_supported") or [_BASIC]
        method = _POST if _BASIC not in methods and _POST in methods else _BASIC
        return AsyncOAuth2Client(
            settings.client_id,
            secret.get_secret_value() if secret else None,
            token_endpoint_auth_method=method if secret else "none",
            scope=settings.scope,
            redirect_uri=callback,
            code_challenge_method="S256",
            timeout=_TIMEOUT_S,
            trust_env=False,
            proxy=proxy_for(configuration["token_endpoint"]),
        )

    def _key(self, state: str) -> str:
        return f"{self._prefix}signing-in:{hashlib.sha256(state.encode()).hexdigest()}"
