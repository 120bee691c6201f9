"""The keys in an issuer's key set (JWKS, RFC 7517) that tokens may be verified with, each with its algorithms.

What an algorithm does with a key of another kind is undefined at best. So the algorithms follow from the key, and a
token has no say in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from jwt.algorithms import AllowedPublicKeys

_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""By `kty` and `crv`. Asymmetric ones alone: with a shared secret, who checks a token could make one."""
_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")
"""Members of a public key; a careless issuer may publish more."""
_RSA_BITS: Final = range(2048, 8193)
"""Shorter ones can be broken, longer ones take long."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    key: AllowedPublicKeys
    algorithms: tuple[str, ...]
    """Those of its kind; the one it names, if it names one."""


def verification_keys(document: Mapping[str, Any]) -> dict[str, VerificationKey]:
    """By key id, "" for none. What is not for signatures, of an unknown kind or broken is left out."""
    members = document.get("keys")
    found: dict[str, VerificationKey] = {}
    for member in members if isinstance(members, list) else ():
        if not isinstance(member, dict) or not isinstance(key_id := member.get("kid", ""), str):
            continue
        if key := _key(member):
            found[key_id] = key
    return found


def _key(member: Mapping[str, Any]) -> VerificationKey | None:
    if member.get("use", "sig") != "sig" or "verify" not in _listed(member.get("key_ops", ["verify"])):
        return None
    kind = (str(member.get("kty")), str(member["crv"]) if "crv" in member else None)
    named = member.get("alg")
    algorithms = tuple(each for each in _ALGORITHMS.get(kind, ()) if named in (None, each))
    if not algorithms:
        return None
    try:
        key = jwt.PyJWK({name: member[name] for name in _PUBLIC if name in member}, algorithms[0]).key
    except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, AttributeError, KeyError, OverflowError):
        return None  # whatever a broken one makes of the steps inside
    if kind[0] == "RSA" and key.key_size not in _RSA_BITS:
        return None
    return VerificationKey(key, algorithms)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
