"""Tokens and keys that were made to break their reader: refused, whatever is in them, and no one else notices."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from jwt.algorithms import get_default_algorithms
from support.clock import Clock
from support.issuer import KEY, KEYS, RSA, Published, SigningKey, claims_of, refusal, segment

from serve_app.accounts.jwt_auth import KEYS_LIVE_S, BearerTokens

NOT_VALID = "its signature is not valid"
UNPUBLISHED = "it is signed with a key that its issuer does not publish"
ALGORITHMS = [*get_default_algorithms(), "RSA", "EC", "A256GCM"]


def with_header(head: dict[str, Any], signature: str = "eHg") -> str:
    return f"{segment(json.dumps(head).encode())}.{segment(json.dumps(claims_of()).encode())}.{signature}"


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.id)
@pytest.mark.parametrize("says", [True, False], ids=["named", "unnamed"])
async def test_a_token_of_another_algorithm_than_its_keys_is_refused(
    tokens: BearerTokens, published: Published, key: SigningKey, says: bool
) -> None:
    published.document = {"keys": [key.published(**({} if says else {"alg": None}))]}
    for algorithm in ALGORITHMS:
        if algorithm != key.algorithm:
            assert await refusal(tokens, with_header({"alg": algorithm, "kid": key.id})) == NOT_VALID, algorithm


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256"])
async def test_a_key_that_names_no_algorithm_is_good_for_those_of_its_kind(
    tokens: BearerTokens, published: Published, algorithm: str
) -> None:
    published.document = {"keys": [RSA.published(alg=None)]}
    assert await tokens.authenticate(SigningKey(RSA.id, algorithm, RSA.private).sign(claims_of()))


async def test_a_key_is_good_for_the_algorithm_it_names_alone(tokens: BearerTokens, published: Published) -> None:
    published.document = {"keys": [RSA.published(alg="RS512")]}
    assert await tokens.authenticate(SigningKey(RSA.id, "RS512", RSA.private).sign(claims_of()))
    assert await refusal(tokens, RSA.sign(claims_of())) == NOT_VALID


@pytest.mark.parametrize(
    "head",
    [
        {"alg": "ES256"},
        *({"alg": "ES256", "kid": kid} for kid in (5, True, None, [], {}, 1.5, ["elliptic"], "\ud800", "a" * 5000)),
        *({"alg": alg, "kid": KEY.id} for alg in (5, True, None, [], {}, ["ES256"], "\ud800", "es256", "ES256 ")),
        {"alg": "ES256", "kid": KEY.id, "crit": []},
        {"alg": "ES256", "kid": KEY.id, "crit": ["exp"]},
        {"alg": "ES256", "kid": KEY.id, "crit": 5},
        {"alg": "ES256", "kid": KEY.id, "b64": False},
        {"alg": "ES256", "kid": KEY.id, "b64": False, "crit": ["b64"]},
        {"alg": "ES256", "kid": KEY.id, "typ": []},
        {"alg": "ES256", "kid": KEY.id, "zip": "DEF", "enc": "A128GCM", "x5c": ["x"] * 50},
        {"alg": "ES256", "kid": KEY.id, "number": 10**4000},
    ],
    ids=lambda head: json.dumps(head)[:40],
)
async def test_a_strange_header_is_refused(tokens: BearerTokens, head: dict[str, Any]) -> None:
    assert await refusal(tokens, with_header(head)) in ("not a JWT", NOT_VALID, UNPUBLISHED)
    assert await tokens.authenticate(KEY.sign(claims_of()))


@pytest.mark.parametrize("size", [0, 1, 63, 65, 10_000])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.id)
async def test_a_signature_of_another_length_is_refused(tokens: BearerTokens, key: SigningKey, size: int) -> None:
    head = {"alg": key.algorithm, "kid": key.id}
    assert await refusal(tokens, with_header(head, segment(b"\xff" * size))) == NOT_VALID


@pytest.mark.parametrize("size", [16_385, 100_000, 5_000_000])
async def test_a_huge_token_is_not_even_read(tokens: BearerTokens, published: Published, size: int) -> None:
    good = KEY.sign(claims_of(padding="x" * size))
    assert await refusal(tokens, good) == "not a JWT of at most 16384 characters"
    assert published.fetches == 0


@pytest.mark.parametrize("claim", ["project", "sub", "role", "iss"])
async def test_claims_that_are_no_text_are_refused(tokens: BearerTokens, claim: str) -> None:
    """Half a surrogate pair is JSON, but can be written nowhere."""
    changes = {"role": None} if claim == "sub" else {}
    assert await refusal(tokens, KEY.sign(claims_of(**changes | {claim: "\ud800"})))


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat", "aud", "sub", "iss", "jti", "project", "role"])
@pytest.mark.parametrize("value", [5, -1e308, float("inf"), float("nan"), [], {}, [[]], True, "x", ""], ids=str)
async def test_no_claim_of_the_wrong_kind_does_harm(tokens: BearerTokens, claim: str, value: Any) -> None:
    payload = json.dumps(claims_of() | {claim: value}).encode()
    token = jwt.PyJWS().encode(payload, KEY.private, KEY.algorithm, headers={"kid": KEY.id})
    is_past = claim in ("nbf", "iat") and value in (5, -1e308, True)
    is_text = claim in ("sub", "jti") and isinstance(value, str)
    if is_past or is_text:
        assert await tokens.authenticate(token)
    else:
        assert await refusal(tokens, token)


ELLIPTIC = KEY.published()
BROKEN: dict[str, Any] = {
    "text": "no key",
    "list": [],
    "empty": {},
    "type-a-list": {"kty": ["EC"], "kid": "broken"},
    "type-an-object": {"kty": {}, "kid": "broken"},
    "algorithm-a-list": ELLIPTIC | {"kid": "broken", "alg": ["ES256"]},
    "algorithm-an-object": ELLIPTIC | {"kid": "broken", "alg": {"a": 1}},
    "algorithm-of-another-kind": ELLIPTIC | {"kid": "broken", "alg": "RS256"},
    "algorithm-none": ELLIPTIC | {"kid": "broken", "alg": "none"},
    "curve-a-list": ELLIPTIC | {"kid": "broken", "crv": ["P-256"]},
    "curve-unknown": ELLIPTIC | {"kid": "broken", "crv": "P-1"},
    "curve-of-another": ELLIPTIC | {"kid": "broken", "crv": "P-384"},
    "not-on-the-curve": ELLIPTIC | {"kid": "broken", "x": segment(b"\1" * 32)},
    "coordinate-a-number": ELLIPTIC | {"kid": "broken", "x": 5},
    "coordinate-missing": {name: value for name, value in ELLIPTIC.items() if name != "y"} | {"kid": "broken"},
    "not-base64": ELLIPTIC | {"kid": "broken", "x": "\ud800!"},
    "rsa-without-modulus": {"kty": "RSA", "kid": "broken", "e": "AQAB"},
    "rsa-a-list": RSA.published(kid="broken", n=["x"]),
    "rsa-even-exponent": RSA.published(kid="broken", e="Ag"),
    "rsa-exponent-zero": RSA.published(kid="broken", e=""),
    "rsa-tiny": {"kty": "RSA", "kid": "broken", "n": "AQAB", "e": "AQAB"},
    "rsa-weak": {"kty": "RSA", "kid": "broken", "n": segment(b"\xff" * 64), "e": "AQAB"},
    "rsa-huge": {"kty": "RSA", "kid": "broken", "n": segment(b"\xff" * 100_000), "e": "AQAB"},
    "edwards-short": {"kty": "OKP", "crv": "Ed25519", "kid": "broken", "x": "AA"},
    "edwards-for-exchange": {"kty": "OKP", "crv": "X25519", "kid": "broken", "x": segment(b"\1" * 32)},
    "shared-secret": {"kty": "oct", "kid": "broken", "k": segment(b"s" * 32)},
    "id-a-list": ELLIPTIC | {"kid": ["broken"]},
    "id-a-number": ELLIPTIC | {"kid": 5},
    "for-encryption": ELLIPTIC | {"kid": "broken", "use": "enc"},
    "use-a-list": ELLIPTIC | {"kid": "broken", "use": ["sig"]},
    "for-wrapping": ELLIPTIC | {"kid": "broken", "key_ops": ["wrapKey"]},
    "operations-a-number": ELLIPTIC | {"kid": "broken", "key_ops": 5},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_broken_key_among_good_ones_is_left_out(
    tokens: BearerTokens, published: Published, broken: Any
) -> None:
    published.document = {"keys": [RSA.published(), broken, KEY.published()]}
    for key in (KEY, RSA):
        assert await tokens.authenticate(key.sign(claims_of()))
    for key in (KEY, RSA):
        assert await refusal(tokens, key.sign(claims_of(), kid="broken")) == UNPUBLISHED


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_broken_keys_alone_leave_the_known_ones(
    tokens: BearerTokens, published: Published, clock: Clock, broken: Any
) -> None:
    await tokens.authenticate(KEY.sign(claims_of()))
    published.document = {"keys": [broken]}
    clock.now += KEYS_LIVE_S + 1
    assert await tokens.authenticate(KEY.sign(claims_of()))


async def test_a_key_that_verifies_by_its_operations_is_used(tokens: BearerTokens, published: Published) -> None:
    published.document = {"keys": [KEY.published() | {"key_ops": ["verify"]}]}
    assert await tokens.authenticate(KEY.sign(claims_of()))
