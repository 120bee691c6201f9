"""Fetching and caching of an issuer's keys, also while it is unreachable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import Clock
from support.issuer import KEY, KEYS, OTHER, TRUSTED, KeySetEndpoint, make_claims, refusal

from serve_app.accounts.jwt_auth import KEYS_LIVE_S, KEYS_REFRESH_S, BearerTokens, IssuerUnreachable
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore


async def test_new_key_causes_one_fetch(tokens: BearerTokens, key_set: KeySetEndpoint, clock: Clock) -> None:
    for key in KEYS:
        assert await tokens.authenticate(key.sign(make_claims()))
    key_set.publish(KEY, OTHER)
    clock.now += KEYS_REFRESH_S + 1
    for _ in range(3):
        assert await tokens.authenticate(OTHER.sign(make_claims()))
        assert await tokens.authenticate(KEY.sign(make_claims()))
    assert key_set.fetches == 2


async def test_unknown_keys_cause_one_fetch_a_minute(
    tokens: BearerTokens, key_set: KeySetEndpoint, clock: Clock
) -> None:
    await tokens.authenticate(KEY.sign(make_claims()))
    for fetches in (1, 2, 3):
        for n in range(5):
            assert "does not publish" in await refusal(tokens, OTHER.sign(make_claims(), kid=f"guess-{n}"))
        assert key_set.fetches == fetches
        clock.now += KEYS_REFRESH_S + 1


async def test_known_keys_stay_valid_while_the_issuer_is_unreachable(
    tokens: BearerTokens, key_set: KeySetEndpoint, clock: Clock
) -> None:
    token = KEY.sign(make_claims())
    await tokens.authenticate(token)
    clock.now += KEYS_LIVE_S + 1
    with key_set.away():
        for _ in range(5):
            assert await tokens.authenticate(token)
        assert key_set.fetches == 2
        with pytest.raises(IssuerUnreachable):
            await tokens.authenticate(OTHER.sign(make_claims()))
    key_set.publish(OTHER)
    clock.now += KEYS_LIVE_S + 1
    assert await tokens.authenticate(OTHER.sign(make_claims()))
    assert "does not publish" in await refusal(tokens, token)


async def test_failed_first_fetch_is_repeated_later(
    tokens: BearerTokens, key_set: KeySetEndpoint, clock: Clock
) -> None:
    token = KEY.sign(make_claims())
    with key_set.away():
        for n in range(5):
            with pytest.raises(IssuerUnreachable):
                await tokens.authenticate(OTHER.sign(make_claims(), kid=f"guess-{n}"))
    assert key_set.fetches == 1
    clock.now += KEYS_REFRESH_S + 1
    assert await tokens.authenticate(token)


@pytest.mark.parametrize("away", [False, True])
async def test_parallel_tokens_share_a_fetch(
    projects: ProjectStore, organizations: OrganizationStore, clock: Clock, away: bool
) -> None:
    fetches = 0

    async def fetch(url: str) -> dict[str, Any]:
        nonlocal fetches
        fetches += 1
        await asyncio.sleep(0)
        clock.now += 5.5  # longer than a fetch may take
        if away:
            raise IssuerUnreachable
        return {"keys": [KEY.public_jwk()]}

    tokens = BearerTokens([TRUSTED], fetch, projects, organizations)
    attempts = (tokens.authenticate(KEY.sign(make_claims())) for _ in range(5))
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert [isinstance(outcome, IssuerUnreachable) for outcome in outcomes] == [away] * 5
    assert fetches == 1


async def test_known_keys_do_not_wait_for_a_fetch(
    projects: ProjectStore, organizations: OrganizationStore, clock: Clock
) -> None:
    fetching, answer = asyncio.Event(), asyncio.Event()
    answer.set()

    async def fetch(url: str) -> dict[str, Any]:
        fetching.set()
        await answer.wait()
        return {"keys": [KEY.public_jwk()]}

    tokens = BearerTokens([TRUSTED], fetch, projects, organizations)
    await tokens.authenticate(KEY.sign(make_claims()))
    clock.now += KEYS_REFRESH_S + 1
    fetching.clear()
    answer.clear()
    unknown = asyncio.create_task(refusal(tokens, OTHER.sign(make_claims())))
    await fetching.wait()
    try:
        async with asyncio.timeout(60):
            await tokens.authenticate(KEY.sign(make_claims()))
    finally:
        answer.set()
        assert "does not publish" in await unknown


@pytest.mark.parametrize("document", [{}, {"keys": []}, {"keys": {}}, {"keys": 5}, {"keys": ["a", 5, {}]}], ids=str)
async def test_invalid_key_set_means_unreachable(
    tokens: BearerTokens, key_set: KeySetEndpoint, document: dict[str, Any]
) -> None:
    key_set.document = document
    with pytest.raises(IssuerUnreachable):
        await tokens.authenticate(KEY.sign(make_claims()))
