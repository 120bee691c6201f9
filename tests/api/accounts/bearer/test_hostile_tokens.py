"""Forged tokens and broken keys are refused and harm no other token."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from jwt.algorithms import get_default_algorithms
from support.clock import Clock
from support.issuer import KEY, KEYS, OTHER, RSA, KeySetEndpoint, SigningKey, make_claims, refusal, segment

from serve_app.accounts.jwt_auth import KEYS_LIVE_S, BearerTokens

NOT_VALID = "its signature is not valid"
UNPUBLISHED = "it is signed with a key that its issuer does not publish"
ALGORITHMS = [*get_default_algorithms(), "RSA", "EC", "A256GCM"]


def with_header(head: dict[str, Any], signature: str = "eHg") -> str:
    return f"{segment(json.dumps(head).encode())}.{segment(json.dumps(make_claims()).encode())}.{signature}"


async def test_token_with_another_algorithm_than_its_key_is_refused(
    tokens: BearerTokens, key_set: KeySetEndpoint
) -> None:
    key_set.document = {"keys": [key.public_jwk(alg=None) for key in KEYS]}
    for key in KEYS:
        for algorithm in ALGORITHMS:
            if algorithm != key.algorithm:
                token = with_header({"alg": algorithm, "kid": key.id})
                assert await refusal(tokens, token) == NOT_VALID, (key, algorithm)


async def test_key_verifies_its_algorithm_or_those_of_its_type(
    tokens: BearerTokens, key_set: KeySetEndpoint, clock: Clock
) -> None:
    good = {name: SigningKey(RSA.id, name, RSA.private).sign(make_claims()) for name in ("RS256", "RS512", "PS256")}
    key_set.document = {"keys": [RSA.public_jwk(alg="RS512")]}
    assert await tokens.authenticate(good["RS512"])
    assert await refusal(tokens, good["RS256"]) == NOT_VALID
    key_set.document = {"keys": [RSA.public_jwk(alg=None, use=None, key_ops=["verify"])]}
    clock.now += KEYS_LIVE_S + 1
    for token in good.values():
        assert await tokens.authenticate(token)


async def test_public_key_is_no_shared_secret(tokens: BearerTokens) -> None:
    secret = RSA.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed, _, _ = with_header({"alg": "HS256", "typ": "JWT", "kid": RSA.id}).rpartition(".")
    # PyJWT itself refuses to sign with a public key.
    signature = jwt.get_algorithm_by_name("HS256").sign(signed.encode(), secret)
    assert await refusal(tokens, f"{signed}.{segment(signature)}") == NOT_VALID


async def test_only_published_keys_are_used(tokens: BearerTokens) -> None:
    assert await refusal(tokens, OTHER.sign(make_claims(), kid=KEY.id)) == NOT_VALID
    for header in ({}, {"kid": ""}, {"jwk": OTHER.public_jwk(), "jku": "https://evil.test/jwks"}):
        assert await refusal(tokens, OTHER.sign(make_claims(), **header)) == UNPUBLISHED
    assert await refusal(tokens, jwt.encode(make_claims(), OTHER.private, "ES256")) == UNPUBLISHED


@pytest.mark.parametrize(
    "head",
    [
        *({"alg": "ES256", "kid": kid} for kid in (5, None, [], "\ud800", "a" * 5000)),
        *({"alg": alg, "kid": KEY.id} for alg in (None, [], "\ud800", "es256")),
        {"alg": "ES256", "kid": KEY.id, "crit": 5},
        {"alg": "ES256", "kid": KEY.id, "b64": False},
        {"alg": "ES256", "kid": KEY.id, "number": 10**4000},
    ],
    ids=lambda head: json.dumps(head)[:40],
)
async def test_invalid_header_is_refused(tokens: BearerTokens, head: dict[str, Any]) -> None:
    assert await refusal(tokens, with_header(head)) in ("not a JWT", NOT_VALID, UNPUBLISHED)
    assert await tokens.authenticate(KEY.sign(make_claims()))


async def test_huge_token_is_refused_without_a_fetch(tokens: BearerTokens, key_set: KeySetEndpoint) -> None:
    good = KEY.sign(make_claims(padding="x" * 16_385))
    assert await refusal(tokens, good) == "not a JWT of at most 16384 characters"
    assert key_set.fetches == 0


@pytest.mark.parametrize("claim", ["project", "sub", "role", "iss"])
async def test_claims_with_lone_surrogates_are_refused(tokens: BearerTokens, claim: str) -> None:
    """JSON may have lone surrogates, which no store can encode."""
    changes = {"role": None} if claim == "sub" else {}
    assert await refusal(tokens, KEY.sign(make_claims(**changes | {claim: "\ud800"})))


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat", "aud", "sub", "iss", "jti", "project", "role"])
async def test_claim_of_a_wrong_type_is_refused(tokens: BearerTokens, claim: str) -> None:
    for value in (5, -1e308, float("inf"), float("nan"), [], {}, [[]], True, "x", ""):
        payload = json.dumps(make_claims() | {claim: value}).encode()
        token = jwt.PyJWS().encode(payload, KEY.private, KEY.algorithm, headers={"kid": KEY.id})
        is_past = claim in ("nbf", "iat") and value in (5, -1e308, True)
        is_text = claim in ("sub", "jti") and isinstance(value, str)
        if is_past or is_text:
            assert await tokens.authenticate(token)
        else:
            assert await refusal(tokens, token)


ELLIPTIC = KEY.public_jwk(kid="broken")
BROKEN: list[Any] = [
    "no key",
    [],
    {},
    {"kty": ["EC"], "kid": "broken"},
    ELLIPTIC | {"alg": ["ES256"]},
    ELLIPTIC | {"alg": "RS256"},
    ELLIPTIC | {"alg": "none"},
    ELLIPTIC | {"crv": ["P-256"]},
    ELLIPTIC | {"crv": "P-384"},
    ELLIPTIC | {"x": segment(b"\1" * 32)},
    ELLIPTIC | {"x": 5},
    ELLIPTIC | {"x": "\ud800!"},
    {name: value for name, value in ELLIPTIC.items() if name != "y"},
    RSA.public_jwk(kid="broken", n=["x"]),
    RSA.public_jwk(kid="broken", e="Ag"),
    {"kty": "RSA", "kid": "broken", "n": segment(b"\xff" * 64), "e": "AQAB"},
    {"kty": "RSA", "kid": "broken", "n": segment(b"\xff" * 100_000), "e": "AQAB"},
    {"kty": "OKP", "crv": "Ed25519", "kid": "broken", "x": "AA"},
    {"kty": "OKP", "crv": "X25519", "kid": "broken", "x": segment(b"\1" * 32)},
    {"kty": "oct", "kid": "broken", "k": segment(b"s" * 32)},
    ELLIPTIC | {"kid": ["broken"]},
    ELLIPTIC | {"use": "enc"},
    ELLIPTIC | {"use": ["sig"]},
    ELLIPTIC | {"key_ops": ["wrapKey"]},
    ELLIPTIC | {"key_ops": 5},
]


async def test_broken_keys_are_skipped_and_known_ones_stay(
    tokens: BearerTokens, key_set: KeySetEndpoint, clock: Clock
) -> None:
    for broken in BROKEN:
        key_set.document = {"keys": [RSA.public_jwk(), broken, KEY.public_jwk()]}
        clock.now += KEYS_LIVE_S + 1
        for key in (KEY, RSA):
            assert await tokens.authenticate(key.sign(make_claims())), broken
            assert await refusal(tokens, key.sign(make_claims(), kid="broken")) == UNPUBLISHED, broken
        key_set.document = {"keys": [broken]}
        clock.now += KEYS_LIVE_S + 1
        assert await tokens.authenticate(KEY.sign(make_claims())), broken
