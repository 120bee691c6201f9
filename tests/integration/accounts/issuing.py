"""A stand-in for an issuer: keys it signs with, and the address it publishes them at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from serve_app.accounts.bearer import IssuerOutOfReach

PrivateKey: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey

ISSUER = "https://login.test"
JWKS_URL = "https://login.test/jwks"
AUDIENCE = "https://media.test"


@dataclass(frozen=True)
class SigningKey:
    id: str
    algorithm: str
    private: PrivateKey

    def published(self, **changes: Any) -> dict[str, Any]:
        """As a JWK; a change to None leaves a member out."""
        form: Any = jwt.get_algorithm_by_name(self.algorithm)
        known = form.to_jwk(self.private.public_key(), as_dict=True)
        members = {**known, "kid": self.id, "alg": self.algorithm, "use": "sig", **changes}
        members.pop("key_ops", None)
        return {name: value for name, value in members.items() if value is not None}

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        return jwt.encode(claims, self.private, self.algorithm, headers={"kid": self.id, **header})


@dataclass
class Published:
    """What is at JWKS_URL; it counts how often it is fetched."""

    document: dict[str, Any] = field(default_factory=dict)
    reachable: bool = True
    fetches: int = 0

    def put(self, *keys: SigningKey) -> None:
        self.document = {"keys": [key.published() for key in keys]}

    async def __call__(self, url: str) -> dict[str, Any]:
        assert url == JWKS_URL
        self.fetches += 1
        if not self.reachable:
            raise IssuerOutOfReach
        return self.document

    @contextmanager
    def away(self) -> Iterator[None]:
        self.reachable = False
        yield
        self.reachable = True


@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


def claims_of(**changes: Any) -> dict[str, Any]:
    """Those of a developer of the project `shop`, good for five minutes; a change to None leaves a claim out."""
    now = int(time.time())
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "exp": now + 300,
        "iat": now,
        "project": "shop",
        "role": "developer",
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}
