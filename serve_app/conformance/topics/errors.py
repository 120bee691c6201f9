"""How a request is refused."""

from __future__ import annotations

from typing import Final

from serve_app.conformance import pictures
from serve_app.conformance.answers import detail, problems
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import FILL, KLEIN, MAX, NO_FINETUNE, SUBMITTED
from serve_app.conformance.session import Session
from serve_app.conformance.verdicts import Skipped, expect

topic = Topic("errors")

_BODY: Final = "Validation error body (HTTP 422)"
_DECIDED: Final = "Decided: errors"
_NEVER_SHOWN: Final = "a-secret-that-is-never-shown"


@topic.holds(_BODY, "`detail`: array of objects: One entry per problem")
async def every_problem_is_told(session: Session) -> None:
    response = await session.submit(KLEIN, {"prompt": "x", "steps": 0, "seed": -1, "width": 1, "height": 64})
    expect(response.status_code == 422, "422")
    named = {entry["loc"][-1] for entry in problems(response)}
    expect({"steps", "seed", "width"} <= named, "one entry each for steps, seed and width")


@topic.holds(_BODY, "`detail[].loc`: array of strings: Location of the faulty field")
async def locations_are_strings(session: Session) -> None:
    response = await session.submit(KLEIN, {"prompt": "x", "images": [pictures.photo(), 7]})
    expect(response.status_code == 422, "422")
    entry = problems(response)[0]
    expect("images" in entry["loc"] and "1" in entry["loc"], 'the strings "images" and "1" in loc')


@topic.holds(_BODY, "`detail[].msg`: string: Message")
async def problems_have_messages(session: Session) -> None:
    expect(bool((await session.refuses(KLEIN, {"steps": 99}, "steps"))["msg"]), "msg, not empty")


@topic.holds(_BODY, "`detail[].type`: string: Error type")
async def problems_have_types(session: Session) -> None:
    expect(bool((await session.refuses(KLEIN, {"steps": 99}, "steps"))["type"]), "type, not empty")


@topic.holds(
    "Errors",
    "HTTP 422: the request failed validation; the body is the validation error body (`detail` array of `loc`, `msg`, "
    "`type`).",
)
async def invalid_requests_are_422(session: Session) -> None:
    for body in ({}, {"prompt": 7}, {"prompt": None}):
        response = await session.submit(MAX, body)
        expect(response.status_code == 422, f"422 for {body}")
        problems(response)


@topic.holds(
    "Endpoints",
    "Every generation endpoint answers with a task submission response on success (HTTP 200) and the validation error "
    "body on HTTP 422.",
)
async def every_endpoint_refuses_alike(session: Session) -> None:
    for name in SUBMITTED:
        response = await session.post(f"/v1/{name}", {"seed": "no number"})
        expect(response.status_code == 422, f"422 from {name}")
        problems(response)


@topic.holds(_DECIDED, '`{"detail": "<string>"}` for all but 422 validation')
async def other_errors_have_a_text(session: Session) -> None:
    detail(await session.get("/v1/no-such-path"), 404)
    detail(await session.post(f"/v1/{KLEIN}", {"prompt": "x"}, key=""), 403)
    detail(await session.post(f"/v1/{FILL}-finetuned", {"finetune_id": NO_FINETUNE, "image": pictures.cut_out()}), 400)


@topic.holds(_DECIDED, "`detail[]` of `{type, loc, msg}` (`loc` array of strings")
async def entries_have_no_more(session: Session) -> None:
    entry = await session.refuses(KLEIN, {"steps": 99}, "steps")
    expect({"type", "loc", "msg"} <= set(entry) <= {"type", "loc", "msg", "ctx"}, "type, loc, msg and at most ctx")


@topic.holds(_DECIDED, "never echo the value of a secret or an image")
async def secrets_and_pictures_are_not_repeated(session: Session) -> None:
    picture = pictures.truncated()
    body = {"prompt": "x", "images": [picture], "webhook_secret": [_NEVER_SHOWN], "steps": 0}
    response = await session.post(f"/v1/{KLEIN}", body)
    expect(response.status_code == 422, "422")
    expect(_NEVER_SHOWN not in response.text and picture not in response.text, "no value of a secret or a picture")


@topic.holds(_DECIDED, 'the validation entry carries `ctx: {"approved": [0, 1, ..]}`, and the message lists them')
async def approved_levels_are_in_ctx(session: Session) -> None:
    response = await session.submit(
        KLEIN, {"prompt": "x", "safety_tolerance": 7, "steps": 1, "width": 64, "height": 64}
    )
    if response.status_code == 200:
        raise Skipped("all levels are approved for this key")
    entry = next((e for e in problems(response) if "safety_tolerance" in e["loc"]), {})
    approved = (entry.get("ctx") or {}).get("approved")
    expect(isinstance(approved, list) and approved == list(range(len(approved))), "ctx.approved, the levels from 0")
    expect(all(str(level) in entry["msg"] for level in approved or ()), "the levels in msg")
