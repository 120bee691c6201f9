"""Requests that are sent again with the same `Idempotency-Key`."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from serve_app.conformance.answers import json_of, problems
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN
from serve_app.conformance.session import Session, minimal
from serve_app.conformance.verdicts import expect

topic = Topic("idempotency")

_SECTION: Final = "Decided: submission"
_PARALLEL: Final = 5


def _new_key() -> dict[str, str]:
    return {"Idempotency-Key": f"conformance-{secrets.token_hex(8)}"}


@topic.holds(_SECTION, "Same key and same body within 24 h: the first response again, one task.", credits=2)
async def a_repetition_gets_the_first_response(session: Session) -> None:
    key = _new_key()
    first = await session.submit(KLEIN, minimal(KLEIN), headers=key)
    again = await session.submit(KLEIN, minimal(KLEIN), headers=key)
    expect(first.status_code == again.status_code == 200, "200 both times")
    expect(json_of(first) == json_of(again), "the first response again, with the same id")


@topic.holds(_SECTION, "Same key, other body: 422.", credits=1)
async def another_body_is_refused(session: Session) -> None:
    key = _new_key()
    await session.accepted(KLEIN, headers=key)
    response = await session.submit(KLEIN, minimal(KLEIN) | {"prompt": "a blue circle"}, headers=key)
    expect(response.status_code == 422, "422")
    problems(response)


@topic.holds(_SECTION, "N parallel submits with one key make one task", credits=5)
async def parallel_submissions_make_one_task(session: Session) -> None:
    key = _new_key()
    responses = await asyncio.gather(*(session.submit(KLEIN, minimal(KLEIN), headers=key) for _ in range(_PARALLEL)))
    # One whose first request is still being handled may be told so.
    accepted = [json_of(response) for response in responses if response.status_code == 200]
    expect({response.status_code for response in responses} <= {200, 409}, "200, or 409 while the first is handled")
    expect(len({reply["id"] for reply in accepted}) == 1, "one id")


@topic.holds("Decided: errors", "409: an idempotency key whose first request is still being handled", credits=5)
async def a_key_in_work_says_when_to_come_back(session: Session) -> None:
    key = _new_key()
    responses = await asyncio.gather(*(session.submit(KLEIN, minimal(KLEIN), headers=key) for _ in range(_PARALLEL)))
    for response in responses:
        expect(response.status_code in (200, 409), "200 or 409")
        expect(response.status_code != 409 or "retry-after" in response.headers, "Retry-After beside 409")


@topic.holds(_SECTION, "`Idempotency-Key` header: optional.", credits=2)
async def another_key_is_another_task(session: Session) -> None:
    one = await session.accepted(KLEIN, headers=_new_key())
    other = await session.accepted(KLEIN, headers=_new_key())
    expect(one["id"] != other["id"], "two tasks for two keys")
