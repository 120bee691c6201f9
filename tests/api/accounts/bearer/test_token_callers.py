"""Which bearer tokens are believed by their claims, and whom they make."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from support.issuer import (
    AUDIENCE,
    ISSUER,
    JWKS_URL,
    KEY,
    KEYS,
    RSA,
    Published,
    SigningKey,
    claims_of,
    now,
    refusal,
    segment,
)

from serve_app.accounts.jwt_auth import (
    BearerTokens,
    Issuer,
)
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.roles import MEMBER_ROLES, Role


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.algorithm)
async def test_a_token_that_a_published_key_signed_is_accepted(tokens: BearerTokens, key: SigningKey) -> None:
    caller = await tokens.authenticate(key.sign(claims_of()))
    assert (caller.project.id, caller.organization, caller.role) == ("shop", "acme", Role.DEVELOPER)
    assert "ada" in caller.id


async def test_a_published_key_need_not_say_its_algorithm(tokens: BearerTokens, published: Published) -> None:
    published.document = {"keys": [key.published(alg=None, use=None) for key in (KEY, RSA)]}
    for key in (KEY, RSA):
        assert (await tokens.authenticate(key.sign(claims_of()))).project.id == "shop"


@pytest.mark.parametrize("role", MEMBER_ROLES)
async def test_the_role_is_that_of_the_claim(tokens: BearerTokens, role: Role) -> None:
    assert (await tokens.authenticate(KEY.sign(claims_of(role=role.value)))).role is role


async def test_without_a_role_in_the_token_it_is_that_of_the_membership(
    tokens: BearerTokens, organizations: OrganizationStore
) -> None:
    token = KEY.sign(claims_of(role=None))
    await organizations.put_member("acme", "ada", Role.BILLING_MANAGER, "test")
    assert (await tokens.authenticate(token)).role is Role.BILLING_MANAGER
    await organizations.put_member("acme", "ada", Role.VIEWER, "test")
    assert (await tokens.authenticate(token)).role is Role.VIEWER
    await organizations.remove_member("acme", "ada", "test")
    assert await refusal(tokens, token) == "it has no claim role, and its subject is no member"


async def test_a_role_in_the_token_goes_before_that_of_the_membership(
    tokens: BearerTokens, organizations: OrganizationStore
) -> None:
    await organizations.put_member("acme", "ada", Role.ADMINISTRATOR, "test")
    assert (await tokens.authenticate(KEY.sign(claims_of(role="viewer")))).role is Role.VIEWER


async def test_a_member_of_another_organization_is_no_member(
    tokens: BearerTokens, organizations: OrganizationStore
) -> None:
    await organizations.put_member("rival", "ada", Role.ADMINISTRATOR, "test")
    assert "no member" in await refusal(tokens, KEY.sign(claims_of(role=None)))


async def test_the_caller_has_what_is_approved_for_the_organization(
    tokens: BearerTokens, organizations: OrganizationStore
) -> None:
    await organizations.approve("acme", "gen-2-pro", 5, "test")
    assert (await tokens.authenticate(KEY.sign(claims_of()))).safety == {"gen-2-pro": 5}


async def test_an_issuer_may_have_other_names_for_its_claims(
    published: Published, projects: ProjectStore, organizations: OrganizationStore
) -> None:
    issuer = Issuer(ISSUER, JWKS_URL, AUDIENCE, "acme", project_claim="https://x.test/team", role_claim="groups")
    tokens = BearerTokens([issuer], published, projects, organizations)
    claims = claims_of(project=None, role=None, groups="viewer") | {"https://x.test/team": "shop"}
    assert (await tokens.authenticate(KEY.sign(claims))).role is Role.VIEWER
    assert "https://x.test/team" in await refusal(tokens, KEY.sign(claims_of(groups="viewer")))


def joined(head: bytes, claims: bytes, signature: bytes = b"x") -> str:
    return ".".join(map(segment, (head, claims, signature)))


NO_TOKENS = {
    "empty": "",
    "a-word": "nonsense",
    "two-parts": "a.b",
    "three-words": "a.b.c",
    "dots": "....",
    "a-key": "gen_aPrettyOrdinaryKey",
    "not-ascii": "tok\u00e9n.\u00e9.\u00e9",
    "no-algorithm": joined(b"{}", b"{}"),
    "unsigned": joined(b"{}", b"{}", b""),
    "header-a-list": joined(b"[]", b"{}"),
    "claims-a-list": joined(b'{"alg": "ES256"}', b"[]"),
    "header-nested": joined(b"[" * 12_000, b"{}"),
    "claims-nested": joined(b'{"alg": "ES256"}', b"[" * 12_000),
    "key-id-a-number": joined(b'{"alg": "ES256", "kid": 5}', b"{}"),
}


@pytest.mark.parametrize("token", NO_TOKENS.values(), ids=NO_TOKENS)
async def test_what_is_no_token(tokens: BearerTokens, published: Published, token: str) -> None:
    assert await refusal(tokens, token) in ("not a JWT", "its issuer is not known here")
    assert published.fetches == 0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown-issuer": ({"iss": "https://evil.test"}, "its issuer is not known here"),
    "issuer-with-a-slash": ({"iss": ISSUER + "/"}, "its issuer is not known here"),
    "no-issuer": ({"iss": None}, "its issuer is not known here"),
    "other-audience": ({"aud": "https://other.test"}, "it is for another audience"),
    "other-audiences": ({"aud": ["https://a.test", "https://b.test"]}, "it is for another audience"),
    "no-audience": ({"aud": None}, "it lacks the claim aud"),
    "no-expiry": ({"exp": None}, "it lacks the claim exp"),
    "no-subject": ({"sub": None}, "it lacks the claim sub"),
    "other-organization": ({"project": "elsewhere"}, "its claim project names no project that it may act in"),
    "default-project": ({"project": "default"}, "its claim project names no project that it may act in"),
    "unknown-project": ({"project": "nowhere"}, "its claim project names no project that it may act in"),
    "no-project": ({"project": None}, "its claim project names no project that it may act in"),
    "empty-project": ({"project": ""}, "its claim project names no project that it may act in"),
    "project-a-number": ({"project": 5}, "its claim project names no project that it may act in"),
    "project-a-list": ({"project": ["shop"]}, "its claim project names no project that it may act in"),
    "operator": ({"role": "operator"}, "its claim role must be one of " + ", ".join(MEMBER_ROLES)),
    "unknown-role": ({"role": "king"}, "its claim role must be one of " + ", ".join(MEMBER_ROLES)),
    "role-in-capitals": ({"role": "Developer"}, "its claim role must be one of " + ", ".join(MEMBER_ROLES)),
    "empty-role": ({"role": ""}, "its claim role must be one of " + ", ".join(MEMBER_ROLES)),
    "role-a-list": ({"role": ["developer"]}, "its claim role must be one of " + ", ".join(MEMBER_ROLES)),
    "role-an-object": ({"role": {"developer": True}}, "its claim role must be one of " + ", ".join(MEMBER_ROLES)),
    "no-role": ({"role": None}, "it has no claim role, and its subject is no member"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED)
async def test_a_well_signed_token_with_wrong_claims(
    tokens: BearerTokens, changes: dict[str, Any], reason: str
) -> None:
    assert await refusal(tokens, KEY.sign(claims_of(**changes))) == reason


@pytest.mark.parametrize("subject", [5, ["ada"], {"name": "ada"}, True])
async def test_a_subject_that_is_no_text_is_refused(tokens: BearerTokens, subject: Any) -> None:
    # Past PyJWT's own encoder, which does not let such a subject through.
    token = jwt.PyJWS().encode(
        json.dumps(claims_of(sub=subject)).encode(), KEY.private, KEY.algorithm, headers={"kid": KEY.id}
    )
    assert await refusal(tokens, token)


@pytest.mark.parametrize("expiry", ["soon", [], {}, float("inf")], ids=str)
async def test_an_expiry_that_is_no_time_is_refused(tokens: BearerTokens, expiry: Any) -> None:
    assert await refusal(tokens, KEY.sign(claims_of(exp=expiry)))


async def test_one_of_several_audiences_is_enough(tokens: BearerTokens) -> None:
    assert await tokens.authenticate(KEY.sign(claims_of(aud=["https://a.test", AUDIENCE])))


@pytest.mark.parametrize(
    ("claim", "offset_s", "reason"),
    [
        ("exp", -30, None),
        ("exp", -61, "it has expired"),
        ("exp", -1_000_000, "it has expired"),
        ("nbf", 30, None),
        ("nbf", 120, "it is not valid yet"),
        ("iat", 30, None),
        ("iat", 120, "it is not valid yet"),
    ],
)
async def test_clocks_may_differ_by_the_skew_and_no_more(
    tokens: BearerTokens, claim: str, offset_s: int, reason: str | None
) -> None:
    token = KEY.sign(claims_of(**{claim: now() + offset_s}))
    if reason is None:
        assert await tokens.authenticate(token)
    else:
        assert await refusal(tokens, token) == reason
