"""No token is believed whose signature is not that of a key its issuer publishes."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from support.issuer import (
    AUDIENCE,
    ISSUER,
    KEY,
    OTHER,
    RSA,
    TRUSTED,
    Published,
    claims_of,
    refusal,
    segment,
)

from serve_app.accounts.jwt_auth import (
    BearerTokens,
    Issuer,
)
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore

NOT_VALID = "its signature is not valid"


async def test_a_signature_of_another_key_is_refused(tokens: BearerTokens) -> None:
    assert await refusal(tokens, OTHER.sign(claims_of(), kid=KEY.id)) == NOT_VALID


async def test_claims_that_were_changed_after_signing_are_refused(tokens: BearerTokens) -> None:
    head, _, signature = KEY.sign(claims_of(role="viewer")).split(".")
    claims = segment(json.dumps(claims_of(role="administrator")).encode())
    assert await refusal(tokens, f"{head}.{claims}.{signature}") == NOT_VALID


async def test_a_token_without_its_signature_is_refused(tokens: BearerTokens) -> None:
    head, claims, _ = KEY.sign(claims_of()).split(".")
    assert await refusal(tokens, f"{head}.{claims}.") == NOT_VALID


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
@pytest.mark.parametrize("signature", ["", segment(b"x")], ids=["unsigned", "signed"])
async def test_the_algorithm_none_is_refused(tokens: BearerTokens, algorithm: str, signature: str) -> None:
    head = segment(json.dumps({"alg": algorithm, "typ": "JWT", "kid": KEY.id}).encode())
    claims = segment(json.dumps(claims_of()).encode())
    assert await refusal(tokens, f"{head}.{claims}.{signature}") in (NOT_VALID, "not a JWT")


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("form", ["pem", "jwk"])
async def test_the_public_key_is_no_shared_secret(tokens: BearerTokens, algorithm: str, form: str) -> None:
    secret = json.dumps(RSA.published()).encode()
    if form == "pem":
        public = RSA.private.public_key()
        secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = segment(json.dumps({"alg": algorithm, "typ": "JWT", "kid": RSA.id}).encode())
    claims = segment(json.dumps(claims_of()).encode())
    # By hand: PyJWT refuses to sign with such a secret.
    shared = jwt.get_algorithm_by_name(algorithm)
    signature = shared.sign(f"{head}.{claims}".encode(), secret)
    assert await refusal(tokens, f"{head}.{claims}.{segment(signature)}") == NOT_VALID


@pytest.mark.parametrize("algorithm", ["HS256", "ES256"])
async def test_a_shared_secret_that_an_issuer_publishes_is_not_used(
    tokens: BearerTokens, published: Published, algorithm: str
) -> None:
    secret = b"s" * 32
    published.document["keys"].append({"kty": "oct", "kid": "shared", "k": segment(secret)})
    head = segment(json.dumps({"alg": algorithm, "kid": "shared"}).encode())
    claims = segment(json.dumps(claims_of()).encode())
    signature = jwt.get_algorithm_by_name("HS256").sign(f"{head}.{claims}".encode(), secret)
    assert await refusal(tokens, f"{head}.{claims}.{segment(signature)}")


@pytest.mark.parametrize("kid", ["unknown", "", None], ids=["unknown", "empty", "none"])
async def test_a_key_that_is_not_published_is_refused(tokens: BearerTokens, kid: str | None) -> None:
    token = OTHER.sign(claims_of(), kid=kid) if kid is not None else jwt.encode(claims_of(), OTHER.private, "ES256")
    assert await refusal(tokens, token) == "it is signed with a key that its issuer does not publish"


async def test_a_key_that_the_token_brings_along_is_not_used(tokens: BearerTokens) -> None:
    token = OTHER.sign(claims_of(), jwk=OTHER.published(), jku="https://evil.test/jwks")
    assert await refusal(tokens, token) == "it is signed with a key that its issuer does not publish"


async def test_one_issuer_does_not_speak_for_another(
    published: Published, projects: ProjectStore, organizations: OrganizationStore
) -> None:
    theirs = Published()
    theirs.put(OTHER)

    async def fetch(url: str) -> dict[str, Any]:
        return theirs.document if url == "https://rival.test/jwks" else await published(url)

    rival = Issuer("https://rival.test", "https://rival.test/jwks", AUDIENCE, "rival")
    tokens = BearerTokens([TRUSTED, rival], fetch, projects, organizations)
    assert tokens.issuers == [ISSUER, "https://rival.test"]
    good = {"iss": "https://rival.test", "project": "elsewhere"}
    assert (await tokens.authenticate(OTHER.sign(claims_of(**good)))).organization == "rival"
    assert "does not publish" in await refusal(tokens, OTHER.sign(claims_of()))
    assert "no project" in await refusal(tokens, OTHER.sign(claims_of(iss="https://rival.test")))


async def test_without_issuers_no_token_is_accepted(projects: ProjectStore, organizations: OrganizationStore) -> None:
    tokens = BearerTokens([], Published(), projects, organizations)
    assert tokens.issuers == []
    assert await refusal(tokens, KEY.sign(claims_of())) == "its issuer is not known here"
