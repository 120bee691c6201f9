"""OAuth 2.1 clients and grants, which let a client act for a person in a project and with a role.

| key | kind | holds |
|---|---|---|
| `gen:asked:{sha256}` | string | JSON of an unanswered `AuthorizationRequest`; expires after `CONSENT_LIFE_S` |
| `gen:code:{sha256}` | string | JSON of a `CodeGrant` before its redemption; expires after `CODE_S` |
| `gen:redeemed:{sha256}` | string | id of the authorization that a code was redeemed for |
| `gen:authorization:{id}` | string | JSON of an `Authorization`; expires `REFRESH_S` after the last refresh |
| `gen:authorizations:{organization}` | set | ids |
| `gen:token:{sha256}` | string | id of an access token's authorization; expires after `ACCESS_S` |
| `gen:refresh:{sha256}` | string | id of a refresh token's authorization |
| `gen:refreshed:{sha256}` | string | id of a used refresh token's authorization |
| `gen:oauth_client:{id}` | string | sealed registration; expires after `UNUSED_CLIENT_S` or `USED_CLIENT_S` |

Secrets are stored as hashes. Each request, code and refresh token is used once: the step that reads it deletes it. If a
refresh token comes twice, a second party has it, so it ends the authorization (OAuth 2.1, 4.3.1). Deleting an
authorization invalidates all of its tokens.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeAlias, cast

from cachetools import TTLCache
from pydantic import BaseModel, ConfigDict, Field
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from serve_app.accounts.api_key_auth import CACHE_S, CACHE_SIZE, Caller
from serve_app.accounts.attempt_limiter import AttemptLimiter
from serve_app.accounts.audit import AuditLog
from serve_app.accounts.keys import hash_secret
from serve_app.accounts.names import fold_name
from serve_app.accounts.roles import Permission, Role, may_grant
from serve_app.accounts.sessions import Session, SessionResolver, SubjectType

CONSENT_LIFE_S: Final = 600
MAX_CONSENT_REQUESTS: Final = 100
"""Maximum of consent requests from one address in `attempt_limiter.WINDOW_S`."""
MAX_CONSENT_REQUESTS_ANYWHERE: Final = 1000
"""Maximum if addresses are unknown."""
CODE_S: Final = 60
ACCESS_S: Final = 3600
REFRESH_S: Final = 90 * 24 * 3600
TOKEN_PREFIX: Final = "gent_"
"""Prefix of access tokens, which keys lack."""
ROLES: Final = (Role.DEVELOPER, Role.VIEWER)
"""Roles of clients, which are the scopes, the one with more permissions first."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)


class AuthorizationRequest(_Record):
    client_id: str
    client_name: str
    redirect_uri: str
    redirect_uri_provided_explicitly: bool
    """False if the registration's only URI is used."""
    challenge: str
    """PKCE challenge, S256."""
    state: str | None
    role: Role
    """Requested role; the person may grant a lower one."""
    resource: str | None


class CodeGrant(_Record):
    """Person's consent to an authorization request."""

    request: AuthorizationRequest
    subject_type: SubjectType = Field(validation_alias="kind", serialization_alias="kind")
    subject: str
    """Subject of the session in which the person consented."""
    by: str
    """Name of the subject."""
    organization: str
    project: str
    role: Role
    everywhere: bool
    """True if the client may act in the organization's other projects, too, as far as the subject may."""


class Authorization(_Record):
    id: str
    grant: CodeGrant
    created: float
    """Epoch seconds."""


class TokenPair(_Record):
    access: str
    refresh: str
    authorization: Authorization


class AuthorizationStore:
    def __init__(self, redis: Redis, prefix: str = "gen:") -> None:
        self._redis = redis
        self._prefix = prefix
        self._audit = AuditLog(redis, prefix)
        self._limiter = AttemptLimiter(redis, prefix)

    async def request_consent(self, request: AuthorizationRequest, address: str) -> str:
        """Stores the request and returns the secret to answer it with. Raises TooManyAttempts."""
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
        """Removes and returns the request. Only the first call gets it."""
        raw = await self._take(self._key("asked", secret))
        return None if raw is None else AuthorizationRequest.model_validate_json(raw)

    async def end_for_subject(self, subject_type: SubjectType, subject: str, organization: str, actor: str) -> None:
        """Ends the authorizations that the subject granted in an organization."""
        for authorization in await self.list(organization):
            grant = authorization.grant
            if grant.subject_type is subject_type and fold_name(grant.subject) == fold_name(subject):
                await self.end(authorization, actor)

    async def issue_code(self, grant: CodeGrant) -> str:
        """Returns the code for which the client gets its tokens."""
        code = secrets.token_urlsafe(32)
        await self._redis.set(self._key("code", code), grant.model_dump_json(), ex=CODE_S)
        return code

    async def find_grant(self, code: str) -> CodeGrant | None:
        """Returns the grant of a valid code. A redeemed code ends its authorization (RFC 6749, 4.1.2)."""
        raw = await self._read(self._key("code", code))
        if raw is None and (authorization := await self._find_by_secret("redeemed", code)):
            await self.end(authorization, "a code that came twice")
        return None if raw is None else CodeGrant.model_validate_json(raw)

    async def issue_tokens(self, code: str) -> TokenPair | None:
        """Redeems a code; None if it was redeemed or has expired."""
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
        """Returns the authorization of a valid refresh token. A used token ends its authorization."""
        authorization = await self._find_by_secret("refresh", refresh)
        if authorization is None and (reused := await self._find_by_secret("refreshed", refresh)):
            await self.end(reused, "a refresh token that came twice")
        return authorization

    async def refresh(self, refresh: str) -> TokenPair | None:
        """Replaces a refresh token by new tokens; None if it was used or has expired."""
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
        """Returns the valid authorizations, oldest first, and cleans their index."""
        ids = sorted(await cast(Awaitable[set[str]], self._redis.smembers(self._index_key(organization))))
        records = await self._redis.mget(map(self._record, ids)) if ids else []
        if expired := [each for each, raw in zip(ids, records, strict=True) if raw is None]:
            await cast(Awaitable[int], self._redis.srem(self._index_key(organization), *expired))
        authorizations = [Authorization.model_validate_json(raw) for raw in records if raw is not None]
        return sorted(authorizations, key=lambda each: each.created)

    async def end(self, authorization: Authorization, actor: str) -> None:
        grant = authorization.grant
        transaction = self._redis.pipeline(transaction=True)
        transaction.delete(self._record(authorization.id))
        transaction.srem(self._index_key(grant.organization), authorization.id)
        self._audit.note(transaction, grant.organization, actor, "oauth_grant.revoked", authorization.id)
        await transaction.execute()

    async def _issue(self, transaction: Pipeline, authorization: Authorization) -> TokenPair:
        access, refresh = TOKEN_PREFIX + secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        # EXPIRE, not SET: the authorization may have ended a moment ago.
        transaction.expire(self._record(authorization.id), REFRESH_S)
        transaction.set(self._key("token", access), authorization.id, ex=ACCESS_S)
        transaction.set(self._key("refresh", refresh), authorization.id, ex=REFRESH_S)
        await transaction.execute()
        return TokenPair(access=access, refresh=refresh, authorization=authorization)

    async def _find_by_secret(self, name: str, secret: str) -> Authorization | None:
        authorization_id = await self._read(self._key(name, secret))
        return None if authorization_id is None else await self.find(authorization_id)

    async def _read(self, key: str) -> str | None:
        return await cast(Awaitable[str | None], self._redis.get(key))

    async def _take(self, key: str) -> str | None:
        return await cast(Awaitable[str | None], self._redis.getdel(key))

    def _record(self, authorization_id: str) -> str:
        return f"{self._prefix}authorization:{authorization_id}"

    def _index_key(self, organization: str) -> str:
        return f"{self._prefix}authorizations:{organization}"

    def _key(self, name: str, secret: str) -> str:
        return f"{self._prefix}{name}:{hash_secret(secret)}"


class TokenAuthentication:
    """Resolves access tokens to callers. It caches authorizations for 10 s, like keys."""

    def __init__(self, authorizations: AuthorizationStore, session_resolver: SessionResolver) -> None:
        self._authorizations = authorizations
        self._session_resolver = session_resolver
        self._cache: TTLCache[str, Authorization] = TTLCache(CACHE_SIZE, CACHE_S, timer=time.monotonic)

    async def caller(self, token: str, project: str | None = None, *, use_cache: bool = True) -> Caller | None:
        """Returns the token's caller in `project`, by default in that of the authorization.

        None if the token has expired, or may not act there.
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
        session = Session(grant.subject_type, grant.subject, grant.organization, project, authorization.created)
        person = await self._session_resolver.resolve(session, use_cache=use_cache)
        if person is None or not may_grant(person.role, grant.role):
            return None
        # Keys that a client created would outlive its authorization.
        withheld = frozenset({Permission.MANAGE_OWN_KEYS})
        return replace(person, id=f"{person.id} ({grant.request.client_name})", role=grant.role, withheld=withheld)


UNUSED_CLIENT_S: Final = 24 * 3600
USED_CLIENT_S: Final = 90 * 24 * 3600
MAX_REGISTRATIONS: Final = 50
"""Maximum of registrations from one address in `attempt_limiter.WINDOW_S`."""
MAX_REGISTRATIONS_ANYWHERE: Final = 500
"""Maximum if addresses are unknown."""
MAX_REGISTRATION_CHARS: Final = 8 * 1024

Seal: TypeAlias = Callable[[str], str]
Unseal: TypeAlias = Callable[[str], str | None]


class OAuthClientStore:
    def __init__(self, redis: Redis, prefix: str, seal: Seal, unseal: Unseal) -> None:
        self._redis = redis
        self._prefix = prefix
        self._seal, self._unseal = seal, unseal
        self._limiter = AttemptLimiter(redis, prefix)

    async def register(self, client_id: str, registration: str, address: str) -> None:
        """Raises TooManyAttempts."""
        limit = MAX_REGISTRATIONS if address else MAX_REGISTRATIONS_ANYWHERE
        await self._limiter.count(f"register from:{address}", limit)
        await self._redis.set(self._key(client_id), self._seal(registration), ex=UNUSED_CLIENT_S)

    async def find(self, client_id: str) -> str | None:
        """Returns the registration; None if it is unknown or its sealing key is gone, so that the client registers."""
        ciphertext = await cast(Awaitable[str | None], self._redis.get(self._key(client_id)))
        return None if ciphertext is None else self._unseal(ciphertext)

    async def mark_used(self, client_id: str) -> None:
        await self._redis.expire(self._key(client_id), USED_CLIENT_S)

    def _key(self, client_id: str) -> str:
        return f"{self._prefix}oauth_client:{client_id}"
