"""Who may ask."""

from __future__ import annotations

from typing import Final

from serve_app.conformance.answers import detail
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN, SUBMITTED, VIDEO
from serve_app.conformance.session import Session, minimal
from serve_app.conformance.verdicts import expect

topic = Topic("authentication")

_SECTION: Final = "Authentication"
_DECIDED: Final = "Decided: errors"
_WRONG: Final = "gen_conformance-no-such-key"
_CLOSED: Final = ("/v1/my_finetunes", "/v1/credits")


@topic.holds(_SECTION, "Every endpoint is secured by an API key sent in the request header `x-key`.", credits=1)
async def endpoints_need_a_key(session: Session) -> None:
    for name in (*SUBMITTED, VIDEO):
        response = await session.post(f"/v1/{name}", minimal(name), key="")
        expect(response.status_code in (401, 403), f"403 from {name} without a key")
    response = await session.post("/v1/licenses/models/any/usage", {}, key="")
    expect(response.status_code in (401, 403), "403 from the usage endpoint without a key")
    await session.accepted(KLEIN)


@topic.holds("Endpoints", "All endpoints require the header `x-key` (see Authentication).")
async def wrong_keys_are_refused_everywhere(session: Session) -> None:
    for name in SUBMITTED:
        response = await session.post(f"/v1/{name}", minimal(name), key=_WRONG)
        expect(response.status_code in (401, 403), f"403 from {name} with a wrong key")


@topic.holds(_DECIDED, '403 `{"detail": "Not authenticated"}` when `x-key` is missing')
async def a_missing_key_is_told(session: Session) -> None:
    text = detail(await session.post(f"/v1/{KLEIN}", minimal(KLEIN), key=""), 403)
    expect(text == "Not authenticated", 'detail "Not authenticated"')


@topic.holds(_DECIDED, '403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired')
async def a_wrong_key_is_told(session: Session) -> None:
    text = detail(await session.post(f"/v1/{KLEIN}", minimal(KLEIN), key=_WRONG), 403)
    expect(text == "Not authenticated - Invalid Authentication", 'detail "Not authenticated - Invalid Authentication"')


@topic.holds("Decided: money, accounts", "Keys: `gen_<random>`")
async def keys_have_their_prefix(session: Session) -> None:
    for path in _CLOSED:
        detail(await session.get(path, key=""), 403)
    expect(session.target.key.startswith("gen_"), "a key that begins with gen_")


@topic.holds("Decided: money, accounts", "accept `Authorization: Bearer <JWT>` from configured issuers (JWKS)")
async def unknown_tokens_are_refused(session: Session) -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJub2JvZHkifQ.c2lnbmF0dXJl"
    response = await session.post(f"/v1/{KLEIN}", minimal(KLEIN), key="", headers={"Authorization": f"Bearer {token}"})
    expect(response.status_code in (401, 403), "401 or 403 for a token of nobody's")
