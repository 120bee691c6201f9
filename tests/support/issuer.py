"""A fake token issuer: its signing keys and the endpoint that publishes them."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from serve_app.accounts.jwt_auth import BearerTokens, IssuerUnreachable, TokenRefused
from serve_app.accounts.settings import IssuerSettings

PrivateKey: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey

ISSUER = "https://login.test"
JWKS_URL = "https://login.test/jwks"
AUDIENCE = "https://media.test"


@dataclass(frozen=True)
class SigningKey:
    id: str
    algorithm: str
    private: PrivateKey

    def public_jwk(self, **changes: Any) -> dict[str, Any]:
        """Returns the public key as a JWK; a change to None removes a member."""
        form: Any = jwt.get_algorithm_by_name(self.algorithm)
        jwk = form.to_jwk(self.private.public_key(), as_dict=True)
        members = {**jwk, "kid": self.id, "alg": self.algorithm, "use": "sig", **changes}
        members.pop("key_ops", None)
        return {name: value for name, value in members.items() if value is not None}

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        return jwt.encode(claims, self.private, self.algorithm, headers={"kid": self.id, **header})


KEY = SigningKey("elliptic", "ES256", ec.generate_private_key(ec.SECP256R1()))
RSA = SigningKey("rsa", "RS256", rsa.generate_private_key(65537, 2048))
OTHER = SigningKey("other", "ES256", ec.generate_private_key(ec.SECP256R1()))
KEYS = [
    KEY,
    RSA,
    SigningKey("rsa-384", "RS384", RSA.private),
    SigningKey("rsa-512", "RS512", RSA.private),
    SigningKey("rsa-pss", "PS256", RSA.private),
    SigningKey("elliptic-384", "ES384", ec.generate_private_key(ec.SECP384R1())),
    SigningKey("edwards", "EdDSA", Ed25519PrivateKey.generate()),
]


def make_issuer(
    issuer: str = ISSUER, jwks_url: str = JWKS_URL, organization: str = "acme", **options: Any
) -> IssuerSettings:
    return IssuerSettings(issuer=issuer, jwks_url=jwks_url, audience=AUDIENCE, organization=organization, **options)


TRUSTED = make_issuer(skew_s=60.0)


@dataclass
class KeySetEndpoint:
    """The key set at JWKS_URL, which counts its fetches."""

    document: dict[str, Any] = field(default_factory=dict)
    reachable: bool = True
    fetches: int = 0

    def publish(self, *keys: SigningKey) -> None:
        self.document = {"keys": [key.public_jwk() for key in keys]}

    async def __call__(self, url: str) -> dict[str, Any]:
        assert url == JWKS_URL
        self.fetches += 1
        if not self.reachable:
            raise IssuerUnreachable
        return self.document

    @contextmanager
    def away(self) -> Iterator[None]:
        self.reachable = False
        yield
        self.reachable = True


def make_claims(**changes: Any) -> dict[str, Any]:
    """Returns claims of a developer of the project `shop`, valid for five minutes; a change to None removes a claim."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "project": "shop", "role": "developer"}
    claims = {**good, "iat": now(), "exp": now() + 300, **changes}
    return {name: value for name, value in claims.items() if value is not None}


async def refusal(tokens: BearerTokens, token: str) -> str:
    with pytest.raises(TokenRefused) as refused:
        await tokens.authenticate(token)
    return str(refused.value)


def now() -> int:
    return int(time.time())


def segment(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
