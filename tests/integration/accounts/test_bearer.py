"""Which bearer tokens are believed, whom they make, and how an issuer's keys are kept."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from issuing import AUDIENCE, ISSUER, JWKS_URL, Clock, Published, SigningKey, claims_of
from redis.asyncio import Redis

from serve_app.accounts import bearer
from serve_app.accounts.bearer import (
    KEYS_LIVE_S,
    KEYS_REFRESH_S,
    BearerTokens,
    Issuer,
    IssuerOutOfReach,
    TokenRefused,
)
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore
from serve_app.accounts.roles import MEMBER_ROLES, Role

KEY = SigningKey("elliptic", "ES256", ec.generate_private_key(ec.SECP256R1()))
RSA = SigningKey("rsa", "RS256", rsa.generate_private_key(65537, 2048))
OTHER = SigningKey("other", "ES256", ec.generate_private_key(ec.SECP256R1()))
KEYS = [
    KEY,
    RSA,
    SigningKey("rsa-384", "RS384", RSA.private),
    SigningKey("rsa-512", "RS512", RSA.private),
    SigningKey("rsa-pss", "PS256", RSA.private),
    SigningKey("elliptic-384", "ES384", ec.generate_private_key(ec.SECP384R1())),
    SigningKey("edwards", "EdDSA", Ed25519PrivateKey.generate()),
]
TRUSTED = Issuer(ISSUER, JWKS_URL, AUDIENCE, "acme", skew_s=60.0)


@pytest.fixture
def published() -> Published:
    published = Published()
    published.put(*KEYS)
    return published


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the keys' age is measured by. The module's own: event loops need the real one."""
    clock = Clock()
    monkeypatch.setattr(bearer, "time", clock)
    return clock


@pytest.fixture
def organizations(redis: Redis, prefix: str) -> OrganizationStore:
    return OrganizationStore(redis, prefix)


@pytest.fixture
async def projects(redis: Redis, prefix: str, organizations: OrganizationStore) -> ProjectStore:
    """The project `shop` of the issuer's organization, and `elsewhere` of another."""
    projects = ProjectStore(redis, prefix)
    for organization, project in (("acme", "shop"), ("rival", "elsewhere")):
        assert await organizations.create(organization, organization, "test")
        assert await projects.create(project, organization, "test")
    return projects


@pytest.fixture
def tokens(published: Published, projects: ProjectStore, organizations: OrganizationStore) -> BearerTokens:
    return BearerTokens([TRUSTED], published, projects, organizations)


async def refusal(tokens: BearerTokens, token: str) -> str:
    with pytest.raises(TokenRefused) as refused:
        await tokens.authenticate(token)
    return str(refused.value)


def now() -> int:
    return int(time.time())


def segment(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


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
    "header-nested": joined(b"[" * 20_000, b"{}"),
    "claims-nested": joined(b'{"alg": "ES256"}', b"[" * 20_000),
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


NOT_VALID = "its signature is not valid"


async def test_a_signature_of_another_key_is_refused(tokens: BearerTokens) -> None:
    assert await refusal(tokens, OTHER.sign(claims_of(), kid=KEY.id)) == NOT_VALID


async def test_claims_that_were_changed_after_signing_are_refused(tokens: BearerTokens) -> None:
    head, _, signature = KEY.sign(claims_of(role="viewer")).split(".")
    claims = segment(json.dumps(claims_of(role="administrator")).encode())
    assert await refusal(tokens, f"{head}.{claims}.{signature}") == NOT_VALID


async def test_a_token_without_its_signature_is_refused(tokens: BearerTokens) -> None:
    head, claims, _ = KEY.sign(claims_of()).split(".")
    assert await refusal(tokens, f"{head}.{claims}.") == NOT_VALID


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
@pytest.mark.parametrize("signature", ["", segment(b"x")], ids=["unsigned", "signed"])
async def test_the_algorithm_none_is_refused(tokens: BearerTokens, algorithm: str, signature: str) -> None:
    head = segment(json.dumps({"alg": algorithm, "typ": "JWT", "kid": KEY.id}).encode())
    claims = segment(json.dumps(claims_of()).encode())
    assert await refusal(tokens, f"{head}.{claims}.{signature}") in (NOT_VALID, "not a JWT")


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("form", ["pem", "jwk"])
async def test_the_public_key_is_no_shared_secret(tokens: BearerTokens, algorithm: str, form: str) -> None:
    secret = json.dumps(RSA.published()).encode()
    if form == "pem":
        public = RSA.private.public_key()
        secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = segment(json.dumps({"alg": algorithm, "typ": "JWT", "kid": RSA.id}).encode())
    claims = segment(json.dumps(claims_of()).encode())
    # By hand: PyJWT refuses to sign with such a secret.
    shared = jwt.get_algorithm_by_name(algorithm)
    signature = shared.sign(f"{head}.{claims}".encode(), secret)
    assert await refusal(tokens, f"{head}.{claims}.{segment(signature)}") == NOT_VALID


@pytest.mark.parametrize("algorithm", ["HS256", "ES256"])
async def test_a_shared_secret_that_an_issuer_publishes_is_not_used(
    tokens: BearerTokens, published: Published, algorithm: str
) -> None:
    secret = b"s" * 32
    published.document["keys"].append({"kty": "oct", "kid": "shared", "k": segment(secret)})
    head = segment(json.dumps({"alg": algorithm, "kid": "shared"}).encode())
    claims = segment(json.dumps(claims_of()).encode())
    signature = jwt.get_algorithm_by_name("HS256").sign(f"{head}.{claims}".encode(), secret)
    assert await refusal(tokens, f"{head}.{claims}.{segment(signature)}")


@pytest.mark.parametrize("kid", ["unknown", "", None], ids=["unknown", "empty", "none"])
async def test_a_key_that_is_not_published_is_refused(tokens: BearerTokens, kid: str | None) -> None:
    token = OTHER.sign(claims_of(), kid=kid) if kid is not None else jwt.encode(claims_of(), OTHER.private, "ES256")
    assert await refusal(tokens, token) == "it is signed with a key that its issuer does not publish"


async def test_a_key_that_the_token_brings_along_is_not_used(tokens: BearerTokens) -> None:
    token = OTHER.sign(claims_of(), jwk=OTHER.published(), jku="https://evil.test/jwks")
    assert await refusal(tokens, token) == "it is signed with a key that its issuer does not publish"


async def test_one_issuer_does_not_speak_for_another(
    published: Published, projects: ProjectStore, organizations: OrganizationStore
) -> None:
    theirs = Published()
    theirs.put(OTHER)

    async def fetch(url: str) -> dict[str, Any]:
        return theirs.document if url == "https://rival.test/jwks" else await published(url)

    rival = Issuer("https://rival.test", "https://rival.test/jwks", AUDIENCE, "rival")
    tokens = BearerTokens([TRUSTED, rival], fetch, projects, organizations)
    assert tokens.issuers == [ISSUER, "https://rival.test"]
    good = {"iss": "https://rival.test", "project": "elsewhere"}
    assert (await tokens.authenticate(OTHER.sign(claims_of(**good)))).organization == "rival"
    assert "does not publish" in await refusal(tokens, OTHER.sign(claims_of()))
    assert "no project" in await refusal(tokens, OTHER.sign(claims_of(iss="https://rival.test")))


async def test_without_issuers_no_token_is_accepted(projects: ProjectStore, organizations: OrganizationStore) -> None:
    tokens = BearerTokens([], Published(), projects, organizations)
    assert tokens.issuers == []
    assert await refusal(tokens, KEY.sign(claims_of())) == "its issuer is not known here"


# How an issuer's keys are kept.


async def test_keys_are_fetched_once_for_many_tokens(tokens: BearerTokens, published: Published, clock: Clock) -> None:
    for key in KEYS:
        assert await tokens.authenticate(key.sign(claims_of()))
    clock.now += KEYS_LIVE_S
    assert await tokens.authenticate(KEY.sign(claims_of()))
    assert published.fetches == 1


async def test_old_keys_are_fetched_anew(tokens: BearerTokens, published: Published, clock: Clock) -> None:
    await tokens.authenticate(KEY.sign(claims_of()))
    published.put(OTHER)
    clock.now += KEYS_LIVE_S + 1
    assert "does not publish" in await refusal(tokens, KEY.sign(claims_of()))
    assert await tokens.authenticate(OTHER.sign(claims_of()))
    assert published.fetches == 2


async def test_a_new_key_is_found_with_one_fetch(tokens: BearerTokens, published: Published, clock: Clock) -> None:
    await tokens.authenticate(KEY.sign(claims_of()))
    published.put(KEY, OTHER)
    clock.now += KEYS_REFRESH_S + 1
    for _ in range(3):
        assert await tokens.authenticate(OTHER.sign(claims_of()))
        assert await tokens.authenticate(KEY.sign(claims_of()))
    assert published.fetches == 2


async def test_unknown_keys_cause_a_fetch_a_minute_at_most(
    tokens: BearerTokens, published: Published, clock: Clock
) -> None:
    await tokens.authenticate(KEY.sign(claims_of()))
    for fetches in (1, 2, 3):
        for n in range(5):
            assert "does not publish" in await refusal(tokens, OTHER.sign(claims_of(), kid=f"guess-{n}"))
        assert published.fetches == fetches
        clock.now += KEYS_REFRESH_S + 1


async def test_known_keys_are_good_while_the_issuer_is_away(
    tokens: BearerTokens, published: Published, clock: Clock
) -> None:
    token = KEY.sign(claims_of())
    await tokens.authenticate(token)
    clock.now += KEYS_LIVE_S + 1
    with published.away():
        assert await tokens.authenticate(token)
        with pytest.raises(IssuerOutOfReach):
            await tokens.authenticate(OTHER.sign(claims_of()))
    published.put(OTHER)
    clock.now += KEYS_LIVE_S + 1
    assert await tokens.authenticate(OTHER.sign(claims_of()))


async def test_without_any_keys_the_issuer_is_out_of_reach_until_it_is_back(
    tokens: BearerTokens, published: Published, clock: Clock
) -> None:
    token = KEY.sign(claims_of())
    with published.away(), pytest.raises(IssuerOutOfReach):
        await tokens.authenticate(token)
    clock.now += KEYS_REFRESH_S + 1
    assert await tokens.authenticate(token)


async def test_an_issuer_that_is_away_is_not_asked_for_every_token(
    tokens: BearerTokens, published: Published, clock: Clock
) -> None:
    token = KEY.sign(claims_of())
    await tokens.authenticate(token)
    clock.now += KEYS_LIVE_S + 1
    with published.away():
        for _ in range(5):
            assert await tokens.authenticate(token)
    assert published.fetches == 2


async def test_strangers_can_not_make_the_service_ask_an_issuer_that_is_away(
    tokens: BearerTokens, published: Published, clock: Clock
) -> None:
    with published.away():
        for n in range(5):
            with pytest.raises(IssuerOutOfReach):
                await tokens.authenticate(OTHER.sign(claims_of(), kid=f"guess-{n}"))
    assert published.fetches == 1


async def test_tokens_that_come_together_share_a_fetch(
    projects: ProjectStore, organizations: OrganizationStore
) -> None:
    fetches, answer = 0, asyncio.Event()

    async def fetch(url: str) -> dict[str, Any]:
        nonlocal fetches
        fetches += 1
        await answer.wait()
        return {"keys": [KEY.published()]}

    tokens = BearerTokens([TRUSTED], fetch, projects, organizations)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(tokens.authenticate(KEY.sign(claims_of())))
        await asyncio.sleep(0)
        answer.set()
    assert fetches == 1


async def test_known_keys_do_not_wait_for_a_fetch_that_an_unknown_one_caused(
    projects: ProjectStore, organizations: OrganizationStore, clock: Clock
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()
    answer.set()

    async def fetch(url: str) -> dict[str, Any]:
        asked.set()
        await answer.wait()
        return {"keys": [KEY.published()]}

    tokens = BearerTokens([TRUSTED], fetch, projects, organizations)
    await tokens.authenticate(KEY.sign(claims_of()))
    clock.now += KEYS_REFRESH_S + 1
    asked.clear()
    answer.clear()
    unknown = asyncio.create_task(refusal(tokens, OTHER.sign(claims_of())))
    await asked.wait()
    try:
        async with asyncio.timeout(1):
            await tokens.authenticate(KEY.sign(claims_of()))
    finally:
        answer.set()
        assert "does not publish" in await unknown


async def test_those_who_waited_for_an_issuer_in_vain_do_not_wait_for_it_in_turn(
    projects: ProjectStore, organizations: OrganizationStore, clock: Clock
) -> None:
    fetches = 0

    async def fetch(url: str) -> dict[str, Any]:
        nonlocal fetches
        fetches += 1
        await asyncio.sleep(0)
        clock.now += 5.5  # as long as a fetch may take, and a little longer
        raise IssuerOutOfReach

    tokens = BearerTokens([TRUSTED], fetch, projects, organizations)
    attempts = (tokens.authenticate(KEY.sign(claims_of())) for _ in range(5))
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        assert isinstance(outcome, IssuerOutOfReach)
    assert fetches == 1


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"error": "not found"},
        {"keys": None},
        {"keys": []},
        {"keys": {}},
        {"keys": "none"},
        {"keys": 5},
        {"keys": ["a", None, 5]},
        {"keys": [{}]},
        {"keys": [{"kty": "unheard-of", "kid": KEY.id}]},
        {"keys": [{"kty": "RSA", "kid": KEY.id, "n": "AQAB"}]},
        {"keys": [{"kty": "RSA", "kid": KEY.id, "n": "AQAB", "e": "AQAB"}]},
        {"keys": [{"kty": "EC", "kid": KEY.id, "crv": "P-256", "x": "AA", "y": "AA"}]},
        {"keys": [{"kty": "EC", "kid": KEY.id, "crv": "P-256", "x": 5, "y": None}]},
    ],
    ids=str,
)
async def test_what_is_no_key_set_counts_as_out_of_reach(
    tokens: BearerTokens, published: Published, document: dict[str, Any]
) -> None:
    published.document = document
    with pytest.raises(IssuerOutOfReach):
        await tokens.authenticate(KEY.sign(claims_of()))


async def test_keys_of_unknown_kinds_are_left_out(tokens: BearerTokens, published: Published) -> None:
    strange = {"kty": "unheard-of", "kid": "strange"}
    broken = {"kty": "RSA", "kid": "broken", "n": "AQAB", "e": "AQAB"}
    published.document = {"keys": [strange, broken, "no key", KEY.published()]}
    assert await tokens.authenticate(KEY.sign(claims_of()))


async def test_a_document_that_is_no_key_set_leaves_the_known_keys(
    tokens: BearerTokens, published: Published, clock: Clock
) -> None:
    await tokens.authenticate(KEY.sign(claims_of()))
    published.document = {"maintenance": True}
    clock.now += KEYS_LIVE_S + 1
    assert await tokens.authenticate(KEY.sign(claims_of()))
