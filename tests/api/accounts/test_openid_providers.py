"""OpenID providers differ: slashes, client secrets, capital letters, booleans as text."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from redis.asyncio import Redis
from support.issuer import KEY
from support.website import Website, serving

from serve_app.accounts.jwt_auth import IssuerUnreachable, fetch_keys
from serve_app.accounts.openid import OpenId, SignInRefused
from serve_app.accounts.settings import OpenIdSettings

BACK = "http://media.test/back"
SECRET = "s3cret"


@pytest.fixture
def site() -> Iterator[Website]:
    with serving("127.0.0.1") as site:
        yield site


async def sign_in(
    site: Website, redis: Redis, prefix: str, configured: str, issuer: str, claims: dict[str, Any], **document: Any
) -> str:
    """Signs in at a provider that calls itself `issuer`. Returns the person's name."""
    document |= {
        "issuer": issuer,
        "jwks_uri": site.set_page("/jwks", json.dumps({"keys": [KEY.public_jwk()]}).encode()),
    }
    document |= {"authorization_endpoint": site.url("/authorize"), "token_endpoint": site.url("/token")}
    site.set_page("/gen/.well-known/openid-configuration", json.dumps(document).encode())
    settings = OpenIdSettings.model_validate({"issuer": configured, "client_id": "gen-serve", "client_secret": SECRET})
    openid = OpenId(redis, prefix, settings, fetch_keys)
    url, state = await openid.begin(BACK, "/gallery", "")
    [nonce] = parse_qs(urlsplit(url).query)["nonce"]
    now = time.time()
    token = KEY.sign({"iss": issuer, "aud": "gen-serve", "sub": "1", "exp": now + 60, "nonce": nonce, **claims})
    answer = {"access_token": "x", "token_type": "Bearer", "id_token": token}
    site.set_page("/token", json.dumps(answer).encode(), content_type="application/json")
    name, _ = await openid.finish(BACK, state, "code")
    return name


@pytest.mark.parametrize(("configured", "issuer"), [("/gen", "/gen/"), ("/gen/", "/gen"), ("/gen/", "/gen/")])
async def test_trailing_slash_of_the_issuer_does_not_count(
    site: Website, redis: Redis, prefix: str, configured: str, issuer: str
) -> None:
    claims = {"email": "Person@Example.com", "email_verified": True}
    assert await sign_in(site, redis, prefix, site.url(configured), site.url(issuer), claims) == "person@example.com"


async def test_discovery_document_of_another_issuer_is_refused(site: Website, redis: Redis, prefix: str) -> None:
    with pytest.raises(IssuerUnreachable):
        await sign_in(site, redis, prefix, site.url("/gen"), site.url("/other"), {})


@pytest.mark.parametrize(
    ("methods", "in_body"),
    [
        (None, False),
        (["client_secret_basic", "client_secret_post"], False),
        (["client_secret_post"], True),
        (["private_key_jwt", "client_secret_post"], True),
    ],
)
async def test_client_secret_is_sent_as_the_provider_supports_it(
    site: Website, redis: Redis, prefix: str, methods: list[str] | None, in_body: bool
) -> None:
    document = {} if methods is None else {"token_endpoint_auth_methods_supported": methods}
    claims = {"email": "ann@example.com", "email_verified": "true"}
    await sign_in(site, redis, prefix, site.url("/gen"), site.url("/gen"), claims, **document)
    [(headers, body)] = site.received
    basic = base64.b64encode(f"gen-serve:{SECRET}".encode()).decode()
    assert headers.get("authorization") == (None if in_body else f"Basic {basic}")
    assert (f"client_secret={SECRET}" in body.decode()) is in_body


@pytest.mark.parametrize("verified", [False, "false", None])
async def test_unverified_address_is_refused(site: Website, redis: Redis, prefix: str, verified: object) -> None:
    claims = {"email": "ann@example.com", "email_verified": verified}
    with pytest.raises(SignInRefused):
        await sign_in(site, redis, prefix, site.url("/gen"), site.url("/gen"), claims)
