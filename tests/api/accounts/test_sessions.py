"""Sessions of browsers, and the callers that they make."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis
from support.redis_dump import read_keys

from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.keys import KeyStore, hash_secret
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.roles import Role
from serve_app.accounts.sessions import LIFE_S, MAX_SESSIONS, SessionResolver, SessionStore, SubjectType


def resolver(redis: Redis, prefix: str, local_role: Role | None = None) -> SessionResolver:
    """Returns a resolver with an empty cache."""
    organizations, projects = OrganizationStore(redis, prefix), ProjectStore(redis, prefix)
    return SessionResolver(SessionStore(redis, prefix), Callers(redis, prefix), organizations, projects, local_role)


@pytest.fixture
def sessions(redis: Redis, prefix: str) -> SessionStore:
    return SessionStore(redis, prefix)


async def test_session_is_found_by_its_secret_until_it_ends(sessions: SessionStore, redis: Redis, prefix: str) -> None:
    secret = await sessions.begin(SubjectType.PERSON, "ada", "default", "default")
    session = await sessions.find(secret)
    assert session is not None
    assert (session.subject_type, session.subject, session.project) == (SubjectType.PERSON, "ada", "default")
    assert secret not in repr(await read_keys(redis, prefix))
    [key] = [key async for key in redis.scan_iter(f"{prefix}session:*", count=10_000)]
    await redis.expire(key, 10)
    await sessions.find(secret)
    assert LIFE_S - 10 < await redis.ttl(key) <= LIFE_S, "use prolongs the session"
    await sessions.end(secret)
    assert await sessions.find(secret) is None
    await sessions.move(secret, "default", "q")
    assert await sessions.find(secret) is None


async def test_oldest_sessions_of_a_person_end_beyond_the_limit(
    sessions: SessionStore, redis: Redis, prefix: str
) -> None:
    theirs = await sessions.begin(SubjectType.PERSON, "bob", "default", "default")
    secrets = [await sessions.begin(SubjectType.PERSON, "ada", "default", "default") for _ in range(MAX_SESSIONS + 5)]
    alive = [secret for secret in secrets if await sessions.find(secret)]
    assert alive == secrets[5:]
    assert await sessions.find(theirs)
    assert await redis.scard(f"{prefix}sessions:person:ada") == MAX_SESSIONS
    for secret in alive[:10]:  # expired, but still in the index
        await redis.delete(f"{prefix}session:{hash_secret(secret)}")
    last = await sessions.begin(SubjectType.PERSON, "ada", "default", "default")
    assert await redis.scard(f"{prefix}sessions:person:ada") == MAX_SESSIONS - 9
    assert await sessions.find(last)


async def test_session_of_a_person_needs_a_membership(
    sessions: SessionStore, organizations: OrganizationStore, redis: Redis, prefix: str
) -> None:
    secret = await sessions.begin(SubjectType.PERSON, "ada", "default", "default")
    assert await resolver(redis, prefix).caller(secret) is None
    await organizations.set_member("default", "ada", Role.VIEWER, "test")
    caller = await resolver(redis, prefix).caller(secret)
    assert caller is not None
    assert (caller.id, caller.role, caller.project.id) == ("ada", Role.VIEWER, "default")
    await organizations.remove_member("default", "ada", "test")
    assert await resolver(redis, prefix).caller(secret) is None
    secret_without_project = await sessions.begin(SubjectType.PERSON, "ada", "default", "gone")
    await organizations.set_member("default", "ada", Role.VIEWER, "test")
    assert await resolver(redis, prefix, Role.OPERATOR).caller(secret_without_project) is None


async def test_session_of_a_key_ends_with_the_key(
    sessions: SessionStore, keys: KeyStore, redis: Redis, prefix: str
) -> None:
    key, key_secret = await keys.create("laptop", "p")
    secret = await sessions.begin(SubjectType.KEY, hash_secret(key_secret), "default", "p")
    caller = await resolver(redis, prefix).caller(secret)
    assert caller is not None
    assert caller.id == key.id
    await keys.revoke(key.id)
    assert await resolver(redis, prefix).caller(secret) is None


async def test_local_session_needs_a_local_role(sessions: SessionStore, redis: Redis, prefix: str) -> None:
    secret = await sessions.begin(SubjectType.LOCAL, "local", "default", "default")
    caller = await resolver(redis, prefix, Role.OPERATOR).caller(secret)
    assert caller is not None
    assert caller.role is Role.OPERATOR
    assert await resolver(redis, prefix).caller(secret) is None


async def test_all_sessions_of_a_person_end_at_any_age(sessions: SessionStore, redis: Redis, prefix: str) -> None:
    secret, other = [await sessions.begin(SubjectType.PERSON, name, "o", "p") for name in ("ada", "grace")]
    await redis.expire(f"{prefix}sessions:person:ada", 60)  # as if it had begun long ago
    assert await sessions.find(secret) is not None
    assert await redis.ttl(f"{prefix}sessions:person:ada") > 60
    assert await sessions.end_all(SubjectType.PERSON, "ada") == 1
    assert await sessions.find(secret) is None
    assert await sessions.find(other) is not None
    assert await sessions.end_all(SubjectType.PERSON, "ada") == 0
