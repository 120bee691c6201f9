"""JWT authentication with tokens of the issuers in the settings.

A token is valid if one of the issuer's published keys (JWKS, RFC 7517) signed it for this audience and it has not
expired. Its claims name a project of the issuer's organization, and a role. Without a role, the subject must be a
member of the organization. A token never makes an operator.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from jwt.algorithms import AllowedPublicKeys

from deployments.proxies import proxy_for
from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.roles import MEMBER_ROLES, Role
from serve_app.accounts.settings import IssuerSettings, without_slash

logger = logging.getLogger(__name__)

_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""Accepted algorithms by `kty` and `crv`. None is symmetric: with a shared secret this service could issue tokens."""
_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")
"""Members of a public key. A careless issuer may publish private ones, too."""
_RSA_BITS: Final = range(2048, 8193)
"""Accepted lengths: shorter keys can be broken, longer ones are slow."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    key: AllowedPublicKeys
    algorithms: tuple[str, ...]
    """The algorithm that the key names, else all of its type."""


def parse_jwks(document: Mapping[str, Any]) -> dict[str, VerificationKey]:
    """Returns the usable keys by key id, "" for none. It skips keys not for signatures, unknown and broken ones."""
    members = document.get("keys")
    keys: dict[str, VerificationKey] = {}
    for member in members if isinstance(members, list) else ():
        if not isinstance(member, dict) or not isinstance(key_id := member.get("kid", ""), str):
            continue
        if key := _parse_jwk(member):
            keys[key_id] = key
    return keys


def _parse_jwk(member: Mapping[str, Any]) -> VerificationKey | None:
    operations = member.get("key_ops", ["verify"])
    if member.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    key_type = (str(member.get("kty")), str(member["crv"]) if "crv" in member else None)
    algorithm = member.get("alg")
    algorithms = tuple(each for each in _ALGORITHMS.get(key_type, ()) if algorithm in (None, each))
    if not algorithms:
        return None
    try:
        key = jwt.PyJWK({name: member[name] for name in _PUBLIC if name in member}, algorithms[0]).key
    except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, AttributeError, KeyError, OverflowError):
        return None  # PyJWT raises any of these for a broken key
    if key_type[0] == "RSA" and key.key_size not in _RSA_BITS:
        return None
    return VerificationKey(key, algorithms)


_MAX_TOKEN_CHARS: Final = 16 * 1024
KEYS_LIVE_S: Final = 3600.0
KEYS_REFRESH_S: Final = 60.0
"""Seconds after a fetch until an unknown key id may cause another one."""
KEYS_RETRY_S: Final = 5.0
"""Seconds after a failed fetch until the next one."""


class TokenRefused(Exception):
    """The token is not valid. Clients may read the message."""


class IssuerUnreachable(Exception):
    """The issuer's keys could not be fetched."""


FetchKeys = Callable[[str], Awaitable[dict[str, Any]]]
"""Function that fetches the JSON object at a URL. Raises IssuerUnreachable."""


class PublishedKeys:
    """Keys of an issuer, fetched on demand, once for all who wait for them.

    While the issuer is out of reach, the last keys stay valid, so that users can go on.
    """

    def __init__(self, url: str, fetch: FetchKeys) -> None:
        self._url = url
        self._fetch = fetch
        self._keys: dict[str, VerificationKey] = {}
        self._fresh_until = self._next_fetch = float("-inf")
        self._unreachable = False
        self._lock = asyncio.Lock()

    async def get(self, key_id: str) -> VerificationKey:
        """Raises TokenRefused if the key is not published, IssuerUnreachable if that is unknown."""
        if self._needs_fetch(key_id):
            async with self._lock:
                if self._needs_fetch(key_id):  # another caller may have fetched them
                    await self._refresh()
        if key := self._find(key_id):
            return key
        if self._unreachable:
            raise IssuerUnreachable
        raise TokenRefused("it is signed with a key that its issuer does not publish")

    def _find(self, key_id: str) -> VerificationKey | None:
        """Returns the key of that id, or the only key for a token without one (OpenID Connect Core, 10.1)."""
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _needs_fetch(self, key_id: str) -> bool:
        now = time.monotonic()
        return (self._find(key_id) is None or now > self._fresh_until) and now > self._next_fetch

    async def _refresh(self) -> None:
        try:
            keys = parse_jwks(await self._fetch(self._url))
            if not keys:
                raise IssuerUnreachable
        except IssuerUnreachable:
            logger.warning("keys could not be fetched from %s", self._url)
            self._unreachable, self._next_fetch = True, time.monotonic() + KEYS_RETRY_S
        else:
            now = time.monotonic()
            self._keys = keys
            self._unreachable, self._next_fetch = False, now + KEYS_REFRESH_S
            self._fresh_until = now + KEYS_LIVE_S


async def verify_claims(token: str, keys: PublishedKeys, issuer: str, audience: str, skew_s: float) -> dict[str, Any]:
    """Returns the claims of a valid JWT. Raises TokenRefused or IssuerUnreachable."""
    try:
        key = await keys.get(str(jwt.get_unverified_header(token).get("kid", "")))
        return jwt.decode(
            token,
            key.key,
            algorithms=key.algorithms,
            audience=audience,
            issuer=issuer,
            leeway=skew_s,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
    except jwt.ExpiredSignatureError:
        raise TokenRefused("it has expired") from None
    except jwt.ImmatureSignatureError:
        raise TokenRefused("it is not valid yet") from None
    except jwt.InvalidAudienceError:
        raise TokenRefused("it is for another audience") from None
    except jwt.MissingRequiredClaimError as problem:
        raise TokenRefused(f"it lacks the claim {problem.claim}") from None
    except jwt.PyJWTError:
        raise TokenRefused("its signature is not valid") from None


class BearerTokens:
    def __init__(
        self,
        issuers: Sequence[IssuerSettings],
        fetch: FetchKeys,
        projects: ProjectStore,
        organizations: OrganizationStore,
    ) -> None:
        self._issuers = {without_slash(issuer.issuer): issuer for issuer in issuers}
        self._keys = {issuer.issuer: PublishedKeys(issuer.jwks_url, fetch) for issuer in issuers}
        self._projects = projects
        self._organizations = organizations

    @property
    def issuers(self) -> list[str]:
        return [issuer.issuer for issuer in self._issuers.values()]

    async def authenticate(self, token: str) -> Caller:
        """Raises TokenRefused or IssuerUnreachable."""
        if len(token) > _MAX_TOKEN_CHARS:
            raise TokenRefused(f"not a JWT of at most {_MAX_TOKEN_CHARS} characters")
        issuer, claims = await self._verify(token)
        try:
            return await self._caller(issuer, claims)
        except UnicodeEncodeError:  # JSON may have lone surrogates
            raise TokenRefused("its claims are not text") from None

    async def _verify(self, token: str) -> tuple[IssuerSettings, dict[str, Any]]:
        try:
            unverified_claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            raise TokenRefused("not a JWT") from None
        name = str(unverified_claims.get("iss"))
        issuer = self._issuers.get(without_slash(name))
        if issuer is None:
            raise TokenRefused("its issuer is not known here")
        keys = self._keys[issuer.issuer]
        return issuer, await verify_claims(token, keys, name, issuer.audience, issuer.skew_s)

    async def _caller(self, issuer: IssuerSettings, claims: dict[str, Any]) -> Caller:
        project_id = claims.get(issuer.project_claim)
        project = await self._projects.find(project_id) if isinstance(project_id, str) else None
        if project is None or project.organization != issuer.organization:
            raise TokenRefused(f"its claim {issuer.project_claim} names no project that it may act in")
        person = str(claims["sub"])
        role = await self._role(issuer, claims, person)
        organization = await self._organizations.get(project.organization)
        name = f"{person} ({issuer.issuer})"
        if organization is None:
            return Caller(name, project, role, {})
        return Caller(name, project, role, organization.safety, organization.ceilings)

    async def _role(self, issuer: IssuerSettings, claims: dict[str, Any], person: str) -> Role:
        claim = claims.get(issuer.role_claim)
        if claim is None:
            member = await self._organizations.get_role(issuer.organization, person)
            if member is None:
                raise TokenRefused(f"it has no claim {issuer.role_claim}, and its subject is no member")
            return member
        if claim not in MEMBER_ROLES:
            raise TokenRefused(f"its claim {issuer.role_claim} must be one of {', '.join(MEMBER_ROLES)}")
        return Role(claim)


_TIMEOUT_S: Final = 5.0
"""Seconds for the whole response: all callers with a token of this issuer wait for it."""
_MAX_BYTES: Final = 256 * 1024


async def fetch_keys(url: str) -> dict[str, Any]:
    """Fetches a JSON object. Raises IssuerUnreachable."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            document = json.loads(await _fetch_raw(url))
    except (httpx2.HTTPError, TimeoutError, ValueError, RecursionError):
        raise IssuerUnreachable from None
    if not isinstance(document, dict):
        raise IssuerUnreachable
    return document


async def _fetch_raw(url: str) -> bytes:
    """Fetches a body without decoding: a small one could expand to a large one."""
    async with (
        httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False, proxy=proxy_for(url)) as client,
        client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
    ):
        response.raise_for_status()
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise IssuerUnreachable
    return bytes(body)
