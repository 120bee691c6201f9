"""Credits and prices, all as decided."""

from __future__ import annotations

from typing import Final

from serve_app.conformance.answers import Json, detail, json_of, problems
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN, MAX, PRO
from serve_app.conformance.session import Session, minimal
from serve_app.conformance.verdicts import expect

topic = Topic("money")

_SECTION: Final = "Decided: money, accounts"


async def _credits(session: Session) -> float:
    response = await session.get("/v1/credits")
    expect(response.status_code == 200, "200")
    left = json_of(response).get("credits")
    expect(isinstance(left, int | float), "credits, a number")
    return left or 0


async def _priced(session: Session, endpoint: str, **change: object) -> Json:
    body = minimal(endpoint) | change
    response = await session.post("/v1/pricing", {"path": f"/v1/{endpoint}", "body": body})
    expect(response.status_code == 200, "200")
    return json_of(response)


@topic.holds(_SECTION, '`GET /v1/credits` → `{"credits": n}`.')
async def credits_are_told(session: Session) -> None:
    await _credits(session)


@topic.holds(
    _SECTION, "`POST /v1/pricing` takes a path and a body and answers the estimate without submitting.", credits=1
)
async def prices_are_those_of_submissions(session: Session) -> None:
    before = await _credits(session)
    priced = await _priced(session, KLEIN, width=1024, height=1024)
    expect(await _credits(session) == before, "the same credits after asking for a price")
    reply = await session.accepted(KLEIN, {"width": 1024, "height": 1024})
    expect(priced.get("cost") == reply["cost"], f"the cost of the submission, {reply['cost']}")


@topic.holds(_SECTION, "megapixels rounded up to whole ones, per endpoint from the price table in the catalog")
async def prices_grow_by_whole_megapixels(session: Session) -> None:
    one, also_one, two, three = [
        (await _priced(session, MAX, width=width, height=1024))["cost"] for width in (64, 1024, 1040, 2064)
    ]
    expect(one == also_one, "the same for a part of a megapixel as for a whole one")
    expect(two > also_one and abs((three - two) - (two - also_one)) < 1e-6, "as much more for every further one")


@topic.holds(_SECTION, "flat where the table says so")
async def some_prices_are_flat(session: Session) -> None:
    small = await _priced(session, PRO, width=256, height=256)
    large = await _priced(session, PRO, width=1440, height=1440)
    expect(small["cost"] == large["cost"], "the same price for every size of gen-pro")


@topic.holds(
    _SECTION,
    "Held at submission (402 when it does not fit), settled when `Ready`, given back in full on `Error` or moderation.",
    credits=1,
)
async def tasks_are_paid(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    before = await _credits(session)
    task = await session.end_of(reply["id"])
    after = await _credits(session)
    if task["status"] == "Ready":
        expect(after == before, "nothing more taken at the end than was held at submission")
        expect(task.get("cost") == reply["cost"], f"cost {reply['cost']}")
    else:
        expect(round(after - before, 3) == reply["cost"], "what was held given back")


@topic.holds("What the service does", "Work is billed in credits.", credits=1)
async def submissions_cost_credits(session: Session) -> None:
    before = await _credits(session)
    reply = await session.accepted(KLEIN)
    expect(round(before - await _credits(session), 3) == reply["cost"], f"{reply['cost']} credits less")


@topic.holds(_SECTION, "`POST /v1/pricing` takes a path and a body")
async def prices_of_nonsense_are_refused(session: Session) -> None:
    detail(await session.post("/v1/pricing", {"path": "/v1/gen-of-no-model", "body": {}}), 404)
    response = await session.post("/v1/pricing", {"path": f"/v1/{KLEIN}", "body": minimal(KLEIN) | {"steps": 0}})
    expect(response.status_code == 422, "422 for a body that a submission would be refused for")
    expect(any("steps" in entry["loc"] for entry in problems(response)), "that detail[].loc names steps")
