"""Passwords of people, and the limits of wrong ones."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise

import pytest
from argon2 import PasswordHasher
from redis.asyncio import Redis
from support.redis_dump import read_keys

from serve_app.accounts.attempt_limiter import MAX_WAIT_S, AttemptLimiter, TooManyAttempts
from serve_app.accounts.members import FREE_FAILURES, MAX_SIGN_INS_PER_ADDRESS, PersonStore

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@pytest.fixture
async def people(redis: Redis, prefix: str) -> PersonStore:
    """A store with one person, Ada."""
    people = PersonStore(redis, prefix, CHEAP)
    assert await people.create_user("ada", "correct horse")
    return people


async def test_latest_password_counts_until_the_person_is_forgotten(
    people: PersonStore, redis: Redis, prefix: str
) -> None:
    assert await people.verify("ada", "correct horse", "::1")
    assert not await people.verify("ada", "Correct horse", "::1")
    assert not await people.verify("grace", "correct horse", "::1")
    assert "correct horse" not in repr(await read_keys(redis, prefix))
    await people.set_password("ada", "the new one")
    assert not await people.verify("ada", "correct horse", "::1")
    assert await people.verify("ada", "the new one", "::1")
    assert await people.forget("ada")
    assert not await people.exists("ada")
    assert not await people.verify("ada", "the new one", "::1")


async def test_name_is_unique_for_parallel_requests(people: PersonStore) -> None:
    assert sum(await asyncio.gather(*(people.create_user("eve", f"password {number}") for number in range(4)))) == 1
    assert not await people.create_user("ada", "another")


async def test_right_password_resets_the_count(people: PersonStore) -> None:
    for _ in range(3):
        for _ in range(FREE_FAILURES - 1):
            assert not await people.verify("ada", "a guess", "::1")
        assert await people.verify("ada", "correct horse", "::1")


async def test_parallel_guesses_count_like_single_ones(people: PersonStore) -> None:
    guesses = (people.verify("ada", f"guess {number}", "::1") for number in range(3 * FREE_FAILURES))
    answers = await asyncio.gather(*guesses, return_exceptions=True)
    assert sum(isinstance(answer, TooManyAttempts) for answer in answers) == 2 * FREE_FAILURES
    with pytest.raises(TooManyAttempts) as refusal:
        await people.verify("ada", "correct horse", "::1")
    assert 0 < refusal.value.retry_s <= MAX_WAIT_S


async def test_address_is_limited_by_wrong_passwords_of_many_names(
    people: PersonStore,
) -> None:
    for _ in range(2):
        assert not await people.verify("ada", "a slip", "192.0.2.1")
    signed_in = [await people.verify("ada", "correct horse", "192.0.2.1") for _ in range(MAX_SIGN_INS_PER_ADDRESS + 1)]
    assert all(signed_in)
    guesses = (people.verify(f"name {n}", "a guess", "192.0.2.1") for n in range(MAX_SIGN_INS_PER_ADDRESS - 2))
    assert not any(await asyncio.gather(*guesses))
    with pytest.raises(TooManyAttempts):
        await people.verify("one more", "a guess", "192.0.2.1")
    assert not await people.verify("one more", "a guess", "192.0.2.2")


async def test_guesses_from_other_addresses_cause_no_wait(people: PersonStore) -> None:
    for number in range(150):
        with contextlib.suppress(TooManyAttempts):
            await people.verify("ada", "a guess", f"192.0.2.{number % 15}")
    assert await people.verify("ada", "correct horse", "198.51.100.1")


async def test_each_wrong_attempt_doubles_the_wait(redis: Redis, prefix: str) -> None:
    limiter = AttemptLimiter(redis, prefix)
    waits = []
    for _ in range(8):
        await limiter.count_and_delay("sign in", -3)
        with pytest.raises(TooManyAttempts) as refusal:
            await limiter.count_and_delay("sign in", -3)
        waits.append(refusal.value.retry_s)
        await redis.delete(f"{prefix}wait:sign in")  # as if the wait were over
    # A slow machine sees shorter waits.
    assert all(1.5 * earlier < later or later > 0.9 * MAX_WAIT_S for earlier, later in pairwise(waits)), waits
    assert max(waits) <= MAX_WAIT_S
