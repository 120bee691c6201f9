"""Valid and invalid claims of bearer tokens, and the callers that they make."""

from __future__ import annotations

from typing import Any

import pytest
from support.issuer import (
    AUDIENCE,
    ISSUER,
    KEY,
    KEYS,
    OTHER,
    TRUSTED,
    KeySetEndpoint,
    SigningKey,
    make_claims,
    make_issuer,
    now,
    refusal,
    segment,
)

from serve_app.accounts.jwt_auth import BearerTokens
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.roles import MEMBER_ROLES, Role


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.algorithm)
async def test_token_of_a_published_key_makes_a_caller(
    tokens: BearerTokens, organizations: OrganizationStore, key: SigningKey
) -> None:
    await organizations.approve("acme", "gen-2-pro", 5, "test")
    caller = await tokens.authenticate(key.sign(make_claims(aud=["https://a.test", AUDIENCE])))
    assert (caller.project.id, caller.organization, caller.role) == ("shop", "acme", Role.DEVELOPER)
    assert caller.safety == {"gen-2-pro": 5}
    assert "ada" in caller.id


async def test_trailing_slash_of_an_issuer_does_not_count(
    key_set: KeySetEndpoint, projects: ProjectStore, organizations: OrganizationStore
) -> None:
    for configured, claimed in ((ISSUER, f"{ISSUER}/"), (f"{ISSUER}/", ISSUER)):
        tokens = BearerTokens([make_issuer(configured)], key_set, projects, organizations)
        assert (await tokens.authenticate(KEY.sign(make_claims(iss=claimed)))).project.id == "shop"


async def test_role_is_the_claim_or_that_of_the_member(tokens: BearerTokens, organizations: OrganizationStore) -> None:
    token = KEY.sign(make_claims(role=None))
    await organizations.set_member("rival", "ada", Role.ADMINISTRATOR, "test")
    assert await refusal(tokens, token) == "it has no claim role, and its subject is no member"
    for person, subject in (("ada", "ada"), ("Ada@Example.com", "ada@EXAMPLE.com")):
        await organizations.set_member("acme", person, Role.BILLING_MANAGER, "test")
        caller = await tokens.authenticate(KEY.sign(make_claims(role=None, sub=subject)))
        assert caller.role is Role.BILLING_MANAGER
    for role in MEMBER_ROLES:
        assert (await tokens.authenticate(KEY.sign(make_claims(role=role.value)))).role is role
    await organizations.remove_member("acme", "ada", "test")
    assert "no member" in await refusal(tokens, token)


async def test_issuer_may_rename_the_claims(
    key_set: KeySetEndpoint, projects: ProjectStore, organizations: OrganizationStore
) -> None:
    issuer = make_issuer(project_claim="https://x.test/team", role_claim="groups")
    tokens = BearerTokens([issuer], key_set, projects, organizations)
    claims = make_claims(project=None, role=None, groups="viewer") | {"https://x.test/team": "shop"}
    assert (await tokens.authenticate(KEY.sign(claims))).role is Role.VIEWER
    assert "https://x.test/team" in await refusal(tokens, KEY.sign(make_claims(groups="viewer")))


async def test_issuer_signs_for_its_own_organization_only(
    key_set: KeySetEndpoint, projects: ProjectStore, organizations: OrganizationStore
) -> None:
    theirs = KeySetEndpoint()
    theirs.publish(OTHER)

    async def fetch(url: str) -> dict[str, Any]:
        return theirs.document if url == "https://rival.test/jwks" else await key_set(url)

    rival = make_issuer("https://rival.test", "https://rival.test/jwks", organization="rival")
    tokens = BearerTokens([TRUSTED, rival], fetch, projects, organizations)
    assert tokens.issuers == [ISSUER, "https://rival.test"]
    good = {"iss": "https://rival.test", "project": "elsewhere"}
    assert (await tokens.authenticate(OTHER.sign(make_claims(**good)))).organization == "rival"
    assert "does not publish" in await refusal(tokens, OTHER.sign(make_claims()))
    assert "no project" in await refusal(tokens, OTHER.sign(make_claims(iss="https://rival.test")))


MALFORMED = [
    "",
    "a.b.c",
    "tok\u00e9n.\u00e9.\u00e9",
    *(
        ".".join(map(segment, (head, claims, b"x")))
        for head, claims in (
            (b"{}", b"{}"),
            (b"[]", b"{}"),
            (b'{"alg": "ES256"}', b"[]"),
            (b"[" * 12_000, b"{}"),
            (b'{"alg": "ES256"}', b"[" * 12_000),
        )
    ),
]


async def test_malformed_token_is_refused_without_a_fetch(tokens: BearerTokens, key_set: KeySetEndpoint) -> None:
    for token in MALFORMED:
        assert await refusal(tokens, token) in ("not a JWT", "its issuer is not known here"), token[:40]
    assert key_set.fetches == 0


ROLES = "its claim role must be one of " + ", ".join(MEMBER_ROLES)
NO_PROJECT = "its claim project names no project that it may act in"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"iss": ISSUER + "/other"}, "its issuer is not known here"),
    ({"iss": None}, "its issuer is not known here"),
    ({"aud": ["https://a.test", "https://b.test"]}, "it is for another audience"),
    ({"aud": None}, "it lacks the claim aud"),
    ({"exp": None}, "it lacks the claim exp"),
    ({"sub": None}, "it lacks the claim sub"),
    ({"project": "elsewhere"}, NO_PROJECT),
    ({"project": "default"}, NO_PROJECT),
    ({"project": "nowhere"}, NO_PROJECT),
    ({"project": None}, NO_PROJECT),
    ({"role": "operator"}, ROLES),
    ({"role": "Developer"}, ROLES),
    ({"role": ""}, ROLES),
    ({"role": ["developer"]}, ROLES),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=str)
async def test_token_with_wrong_claims_is_refused(tokens: BearerTokens, changes: dict[str, Any], reason: str) -> None:
    assert await refusal(tokens, KEY.sign(make_claims(**changes))) == reason


async def test_clocks_may_differ_by_the_configured_skew(tokens: BearerTokens) -> None:
    for claim, near_s, far_s, reason in (
        ("exp", -30, -61, "it has expired"),
        ("nbf", 30, 120, "it is not valid yet"),
        ("iat", 30, 120, "it is not valid yet"),
    ):
        assert await tokens.authenticate(KEY.sign(make_claims(**{claim: now() + near_s})))
        assert await refusal(tokens, KEY.sign(make_claims(**{claim: now() + far_s}))) == reason
