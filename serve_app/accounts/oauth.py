"""OAuth 2.1 clients and grants: in which project and as which role a client acts for a person.

| key | kind | holds |
|---|---|---|
| `gen:asked:{sha256}` | string | JSON of an unanswered `AuthorizationRequest`; goes after `CONSENT_LIFE_S` |
| `gen:code:{sha256}` | string | JSON of a `CodeGrant` that was not redeemed yet; goes after `CODE_S` |
| `gen:redeemed:{sha256}` | string | id of the authorization that a code was redeemed for |
| `gen:authorization:{id}` | string | JSON of an `Authorization`; goes `REFRESH_S` after the last refresh |
| `gen:authorizations:{organization}` | set | ids |
| `gen:token:{sha256}` | string | id of the authorization of an access token; goes after `ACCESS_S` |
| `gen:refresh:{sha256}` | string | the same of a refresh token |
| `gen:refreshed:{sha256}` | string | the same of one that was used |

Secrets are kept as hashes. Each question, code and refresh token serves once: whoever takes it away has it. A refresh
token that comes again was stolen from one of the two who sent it, so it ends the authorization (OAuth 2.1, 4.3.1).
Tokens are worth nothing without their authorization: whoever takes that away ends them all.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeAlias, cast

from cachetools import TTLCache
from pydantic import BaseModel, ConfigDict
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from serve_app.accounts.api_key_auth import CACHE_S, CACHE_SIZE, Caller
from serve_app.accounts.attempt_limiter import AttemptLimiter
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.names import fold_name
from serve_app.accounts.roles import Permission, Role, may_hand_out
from serve_app.accounts.sessions import Kind, Session, SessionResolver

CONSENT_LIFE_S: Final = 600
MAX_CONSENT_REQUESTS: Final = 100
"""From one address in `attempt_limiter.WINDOW_S`."""
MAX_CONSENT_REQUESTS_ANYWHERE: Final = 1000
"""Where addresses are not known."""
CODE_S: Final = 60
ACCESS_S: Final = 3600
REFRESH_S: Final = 90 * 24 * 3600
TOKEN_PREFIX: Final = "gent_"
"""What every access token begins with, and no key."""
ROLES: Final = (Role.DEVELOPER, Role.VIEWER)
"""What clients may be, the more of them first: their scopes."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class AuthorizationRequest(_Record):
    """An OAuth client's authorization request."""

    client_id: str
    client_name: str
    """The client's own name, which it chose."""
    redirect_uri: str
    redirect_uri_provided_explicitly: bool
    """In the question; there may be just one in the registration."""
    challenge: str
    """PKCE, S256."""
    state: str | None
    role: Role
    """The most that it asks for."""
    resource: str | None


class CodeGrant(_Record):
    """The answer."""

    request: AuthorizationRequest
    kind: Kind
    subject: str
    """As of a session."""
    by: str
    """Its name."""
    organization: str
    project: str
    role: Role
    everywhere: bool
    """It may act in the organization's other projects, too, as far as whoever gave it may."""


class Authorization(_Record):
    id: str
    grant: CodeGrant
    created: float
    """Epoch seconds."""


class Tokens(_Record):
    access: str
    refresh: str
    authorization: Authorization


class Authorizations:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._audit = AuditLog(redis, prefix)
        self._limiter = AttemptLimiter(redis, prefix)

    async def request_consent(self, request: AuthorizationRequest, address: str) -> str:
        """The secret under which it can be answered. Raises TooOften."""
        await self._limiter.count(
            f"ask from:{address}", MAX_CONSENT_REQUESTS if address else MAX_CONSENT_REQUESTS_ANYWHERE
        )
        secret = secrets.token_urlsafe(24)
        await self._redis.set(self._key("asked", secret), request.model_dump_json(), ex=CONSENT_LIFE_S)
        return secret

    async def find_request(self, secret: str) -> AuthorizationRequest | None:
        raw = await self._read(self._key("asked", secret))
        return None if raw is None else AuthorizationRequest.model_validate_json(raw)

    async def take_request(self, secret: str) -> AuthorizationRequest | None:
        """The question, which is gone then: it is answered once."""
        raw = await self._take(self._key("asked", secret))
        return None if raw is None else AuthorizationRequest.model_validate_json(raw)

    async def end_for_subject(self, kind: Kind, subject: str, organization: str, actor: str) -> None:
        """What somebody gave in an organization, who is no member there any more."""
        for authorization in await self.list(organization):
            grant = authorization.grant
            if grant.kind is kind and fold_name(grant.subject) == fold_name(subject):
                await self.end(authorization, actor)

    async def issue_code(self, grant: CodeGrant) -> str:
        """The code that the client fetches its tokens with."""
        code = secrets.token_urlsafe(32)
        await self._redis.set(self._key("code", code), grant.model_dump_json(), ex=CODE_S)
        return code

    async def find_grant(self, code: str) -> CodeGrant | None:
        """None for a code that is over. One that was redeemed before ends what it was for (RFC 6749, 4.1.2)."""
        raw = await self._read(self._key("code", code))
        if raw is None and (authorization := await self._find_by_secret("redeemed", code)):
            await self.end(authorization, "a code that came twice")
        return None if raw is None else CodeGrant.model_validate_json(raw)

    async def issue_tokens(self, code: str) -> Tokens | None:
        """None for a code that was used or is too old."""
        raw = await self._take(self._key("code", code))
        if raw is None:
            return None
        grant = CodeGrant.model_validate_json(raw)
        authorization = Authorization(id=secrets.token_hex(8), grant=grant, created=time.time())
        transaction = self._redis.pipeline(transaction=True)
        transaction.sadd(self._index_key(grant.organization), authorization.id)
        self._audit.note(
            transaction,
            grant.organization,
            grant.by,
            "oauth_grant.created",
            authorization.id,
            client=grant.request.client_name,
            project=grant.project,
            role=grant.role.value,
        )
        transaction.set(self._record(authorization.id), authorization.model_dump_json())
        transaction.set(self._key("redeemed", code), authorization.id, ex=REFRESH_S)
        return await self._issue(transaction, authorization)

    async def refreshable(self, refresh: str) -> Authorization | None:
        """That of a refresh token. One that was used before ends it."""
        authorization = await self._find_by_secret("refresh", refresh)
        if authorization is None and (spent := await self._find_by_secret("refreshed", refresh)):
            await self.end(spent, "a refresh token that came twice")
        return authorization

    async def refresh(self, refresh: str) -> Tokens | None:
        """New tokens for the old one, which is worth nothing then."""
        authorization_id = await self._take(self._key("refresh", refresh))
        authorization = None if authorization_id is None else await self.find(authorization_id)
        if authorization is None:
            return None
        transaction = self._redis.pipeline(transaction=True)
        transaction.set(self._key("refreshed", refresh), authorization.id, ex=REFRESH_S)
        return await self._issue(transaction, authorization)

    async def find_by_token(self, token: str) -> Authorization | None:
        return await self._find_by_secret("token", token)

    async def find(self, authorization_id: str) -> Authorization | None:
        raw = await self._read(self._record(authorization_id))
        return None if raw is None else Authorization.model_validate_json(raw)

    async def list(self, organization: str) -> list[Authorization]:
        """Those that still hold, oldest first."""
        ids = sorted(await cast(Awaitable[set[str]], self._redis.smembers(self._index_key(organization))))
        records = await self._redis.mget(map(self._record, ids)) if ids else []
        if over := [each for each, raw in zip(ids, records, strict=True) if raw is None]:
            await cast(Awaitable[int], self._redis.srem(self._index_key(organization), *over))
        authorizations = [Authorization.model_validate_json(raw) for raw in records if raw is not None]
        return sorted(authorizations, key=lambda each: each.created)

    async def end(self, authorization: Authorization, actor: str) -> None:
        grant = authorization.grant
        transaction = self._redis.pipeline(transaction=True)
        transaction.delete(self._record(authorization.id))
        transaction.srem(self._index_key(grant.organization), authorization.id)
        self._audit.note(transaction, grant.organization, actor, "oauth_grant.revoked", authorization.id)
        await transaction.execute()

    async def _issue(self, transaction: Pipeline, authorization: Authorization) -> Tokens:
        access, refresh = TOKEN_PREFIX + secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        # Not set: somebody may have ended it a moment ago.
        transaction.expire(self._record(authorization.id), REFRESH_S)
        transaction.set(self._key("token", access), authorization.id, ex=ACCESS_S)
        transaction.set(self._key("refresh", refresh), authorization.id, ex=REFRESH_S)
        await transaction.execute()
        return Tokens(access=access, refresh=refresh, authorization=authorization)

    async def _find_by_secret(self, kind: str, secret: str) -> Authorization | None:
        authorization_id = await self._read(self._key(kind, secret))
        return None if authorization_id is None else await self.find(authorization_id)

    async def _read(self, key: str) -> str | None:
        return await cast(Awaitable[str | None], self._redis.get(key))

    async def _take(self, key: str) -> str | None:
        return await cast(Awaitable[str | None], self._redis.getdel(key))

    def _record(self, authorization_id: str) -> str:
        return f"{self._prefix}authorization:{authorization_id}"

    def _index_key(self, organization: str) -> str:
        return f"{self._prefix}authorizations:{organization}"

    def _key(self, kind: str, secret: str) -> str:
        return f"{self._prefix}{kind}:{hashlib.sha256(secret.encode()).hexdigest()}"


class TokenAuthentication:
    """Remembers authorizations for 10 s, as keys are cached."""

    def __init__(self, authorizations: Authorizations, session_resolver: SessionResolver) -> None:
        self._authorizations = authorizations
        self._session_resolver = session_resolver
        self._cache: TTLCache[str, Authorization] = TTLCache(CACHE_SIZE, CACHE_S, timer=time.monotonic)

    async def caller(self, token: str, project: str | None = None, *, use_cache: bool = True) -> Caller | None:
        """In `project`, or in that of the authorization.

        None for a token that is over, and where it may not act. Without `use_cache` the store is asked.
        """
        authorization = self._cache.get(token) if use_cache else None
        if authorization is None:
            authorization = await self._authorizations.find_by_token(token)
            if authorization is None:
                self._cache.pop(token, None)
                return None
            self._cache[token] = authorization
        grant = authorization.grant
        project = project or grant.project
        if project != grant.project and not grant.everywhere:
            return None
        session = Session(grant.kind, grant.subject, grant.organization, project, authorization.created)
        person = await self._session_resolver.resolve(session, use_cache=use_cache)
        if person is None or not may_hand_out(person.role, grant.role):
            return None
        # What a client made would outlive it.
        withheld = frozenset({Permission.MANAGE_OWN_KEYS})
        return replace(person, id=f"{person.id} ({grant.request.client_name})", role=grant.role, withheld=withheld)


UNUSED_CLIENT_S: Final = 24 * 3600
USED_CLIENT_S: Final = 90 * 24 * 3600
MOST_FROM_AN_ADDRESS: Final = 50
"""Registrations in `attempt_limiter.WINDOW_S`."""
MOST_FROM_ANYWHERE: Final = 500
"""Where addresses are not known."""
LARGEST_REGISTRATION: Final = 8 * 1024
"""Characters of a registration."""

Seal: TypeAlias = Callable[[str], str]
Unseal: TypeAlias = Callable[[str], str | None]


class OAuthClients:
    def __init__(self, redis: Redis, prefix: str, seal: Seal, unseal: Unseal) -> None:
        self._redis = redis
        self._prefix = prefix
        self._seal, self._unseal = seal, unseal
        self._limiter = AttemptLimiter(redis, prefix)

    async def register(self, client_id: str, registration: str, address: str) -> None:
        """Raises TooOften."""
        await self._limiter.count(f"register from:{address}", MOST_FROM_AN_ADDRESS if address else MOST_FROM_ANYWHERE)
        await self._redis.set(self._key(client_id), self._seal(registration), ex=UNUSED_CLIENT_S)

    async def find(self, client_id: str) -> str | None:
        """Its registration; None as well where the key that sealed it is gone, for then it registers anew."""
        ciphertext = await cast(Awaitable[str | None], self._redis.get(self._key(client_id)))
        return None if ciphertext is None else self._unseal(ciphertext)

    async def mark_used(self, client_id: str) -> None:
        await self._redis.expire(self._key(client_id), USED_CLIENT_S)

    def _key(self, client_id: str) -> str:
        return f"{self._prefix}oauth_client:{client_id}"
