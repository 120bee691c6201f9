"""Sessions of browsers, and whom they stand for."""

from __future__ import annotations

from redis.asyncio import Redis
from support.redis_contents import values

from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.keys import KeyStore, digest_of
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.roles import Role
from serve_app.accounts.sessions import LIFE_S, MOST, Kind, SessionStore, SignedIn


def signed_in(redis: Redis, prefix: str, local_role: Role | None = None) -> SignedIn:
    """One that remembers nothing yet."""
    organizations, projects = OrganizationStore(redis, prefix), ProjectStore(redis, prefix)
    return SignedIn(SessionStore(redis, prefix), Callers(redis, prefix), organizations, projects, local_role)


async def test_a_session_is_found_by_its_secret_until_it_ends(redis: Redis, prefix: str) -> None:
    sessions = SessionStore(redis, prefix)
    secret = await sessions.begin(Kind.PERSON, "ada", "default", "default")
    session = await sessions.find(secret)
    assert session is not None
    assert (session.kind, session.subject, session.project) == (Kind.PERSON, "ada", "default")
    assert secret not in repr(await values(redis, prefix))
    await sessions.end(secret)
    assert await sessions.find(secret) is None


async def test_of_very_many_sessions_of_one_the_oldest_end(redis: Redis, prefix: str) -> None:
    sessions = SessionStore(redis, prefix)
    theirs = await sessions.begin(Kind.PERSON, "bob", "default", "default")
    secrets = [await sessions.begin(Kind.PERSON, "ada", "default", "default") for _ in range(MOST + 5)]
    alive = [secret for secret in secrets if await sessions.find(secret)]
    assert alive == secrets[5:]
    assert await sessions.find(theirs)
    assert await redis.scard(f"{prefix}sessions:person:ada") == MOST
    for secret in alive[:10]:  # over by themselves, of which their index knows nothing
        await redis.delete(f"{prefix}session:{digest_of(secret)}")
    last = await sessions.begin(Kind.PERSON, "ada", "default", "default")
    assert await redis.scard(f"{prefix}sessions:person:ada") == MOST - 9
    assert await sessions.find(last)


async def test_a_session_that_is_used_lives_longer(redis: Redis, prefix: str) -> None:
    sessions = SessionStore(redis, prefix)
    secret = await sessions.begin(Kind.PERSON, "ada", "default", "default")
    [key] = [key async for key in redis.scan_iter(f"{prefix}session:*", count=10_000)]
    await redis.expire(key, 10)
    await sessions.find(secret)
    assert LIFE_S - 10 < await redis.ttl(key) <= LIFE_S


async def test_all_of_ones_sessions_end_at_once(redis: Redis, prefix: str) -> None:
    sessions = SessionStore(redis, prefix)
    own = [await sessions.begin(Kind.PERSON, "ada", "default", "default") for _ in range(3)]
    others = await sessions.begin(Kind.PERSON, "grace", "default", "default")
    assert await sessions.end_all(Kind.PERSON, "ada") == 3
    assert [await sessions.find(secret) for secret in own] == [None] * 3
    assert await sessions.find(others) is not None
    assert await sessions.end_all(Kind.PERSON, "ada") == 0


async def test_a_session_stands_for_a_member_as_long_as_they_are_one(redis: Redis, prefix: str) -> None:
    organizations = OrganizationStore(redis, prefix)
    secret = await SessionStore(redis, prefix).begin(Kind.PERSON, "ada", "default", "default")
    assert await signed_in(redis, prefix).caller(secret) is None
    await organizations.put_member("default", "ada", Role.VIEWER, "test")
    caller = await signed_in(redis, prefix).caller(secret)
    assert caller is not None
    assert (caller.id, caller.role, caller.project.id) == ("ada", Role.VIEWER, "default")
    await organizations.remove_member("default", "ada", "test")
    assert await signed_in(redis, prefix).caller(secret) is None


async def test_a_session_of_a_key_ends_with_the_key(redis: Redis, prefix: str) -> None:
    keys = KeyStore(redis, prefix)
    key, secret_of_key = await keys.create("laptop", "p")
    secret = await SessionStore(redis, prefix).begin(Kind.KEY, digest_of(secret_of_key), "default", "p")
    caller = await signed_in(redis, prefix).caller(secret)
    assert caller is not None
    assert caller.id == key.id
    await keys.revoke(key.id)
    assert await signed_in(redis, prefix).caller(secret) is None


async def test_the_one_at_this_machine_is_what_the_settings_say(redis: Redis, prefix: str) -> None:
    secret = await SessionStore(redis, prefix).begin(Kind.LOCAL, "local", "default", "default")
    caller = await signed_in(redis, prefix, Role.OPERATOR).caller(secret)
    assert caller is not None
    assert caller.role is Role.OPERATOR
    assert await signed_in(redis, prefix).caller(secret) is None


async def test_a_session_of_a_project_that_is_not_there_stands_for_nobody(redis: Redis, prefix: str) -> None:
    await OrganizationStore(redis, prefix).put_member("default", "ada", Role.VIEWER, "test")
    secret = await SessionStore(redis, prefix).begin(Kind.PERSON, "ada", "default", "gone")
    assert await signed_in(redis, prefix, Role.OPERATOR).caller(secret) is None


async def test_all_sessions_are_ended_however_old_they_are(redis: Redis, prefix: str) -> None:
    sessions = SessionStore(redis, prefix)
    secret = await sessions.begin(Kind.PERSON, "ada", "o", "p")
    await redis.expire(f"{prefix}sessions:person:ada", 60)  # as if it had begun long ago
    assert await sessions.find(secret) is not None
    assert await redis.ttl(f"{prefix}sessions:person:ada") > 60
    assert await sessions.end_all(Kind.PERSON, "ada") == 1
    assert await sessions.find(secret) is None


async def test_moving_a_session_that_ended_brings_nothing_back(redis: Redis, prefix: str) -> None:
    sessions = SessionStore(redis, prefix)
    secret = await sessions.begin(Kind.PERSON, "ada", "o", "p")
    await sessions.end(secret)
    await sessions.move(secret, "o", "q")
    assert await sessions.find(secret) is None
