"""What is answered when a task is submitted."""

from __future__ import annotations

from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from serve_app.conformance.answers import Json, detail
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import ENDPOINTS, KLEIN, PRO, SUBMITTED
from serve_app.conformance.session import Session, same_origin
from serve_app.conformance.verdicts import Broken, Skipped, expect

topic = Topic("submission")

_DECIDED: Final = "Decided: submission"
_RESPONSE: Final = "Task submission response"
_FIGURES: Final = ("cost", "input_mp", "output_mp")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _answers_as_described(session: Session, endpoint: str) -> None:
    reply = await session.accepted(endpoint)
    for name in ("id", "polling_url"):
        expect(isinstance(reply.get(name), str) and bool(reply[name]), f"{name}, a string")
    if ENDPOINTS[endpoint].quotes_price:
        for name in _FIGURES:
            expect(reply.get(name) is None or _is_number(reply[name]), f"{name}, a number or null")
    else:
        given = [name for name in _FIGURES if reply.get(name) is not None]
        expect(not given, f"no figures, not {given}")


for name in SUBMITTED:
    described = ENDPOINTS[name]
    topic.holds(described.section, described.answers, credits=described.credits)(
        partial(_answers_as_described, endpoint=name)
    )


@topic.holds(
    "What the service does", "The service answers at once with a task identifier and a polling address.", credits=1
)
async def answers_with_id_and_address(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    expect({"id", "polling_url"} <= set(reply), "id and polling_url")


@topic.holds(
    "What the service does", "Request and response bodies are JSON (`Content-Type: application/json`).", credits=1
)
async def bodies_are_json(session: Session) -> None:
    response = await session.submit(KLEIN, dict(ENDPOINTS[KLEIN].minimal))
    expect(response.headers.get("content-type", "").startswith("application/json"), "Content-Type: application/json")
    refused = await session.post(f"/v1/{KLEIN}", content=b"{ no JSON", headers={"content-type": "application/json"})
    expect(refused.status_code == 422, "422 for a body that is no JSON")
    expect(refused.headers.get("content-type", "").startswith("application/json"), "Content-Type: application/json")


@topic.holds(_RESPONSE, "`id`: string: always: Task identifier", credits=2)
async def every_task_has_its_id(session: Session) -> None:
    ids = {(await session.accepted(KLEIN))["id"] for _ in range(2)}
    expect(len(ids) == 2 and all(isinstance(each, str) for each in ids), "two different strings for two tasks")


@topic.holds(_RESPONSE, "`polling_url`: string: always: Address to poll for the result", credits=1)
async def the_address_can_be_polled(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    response = await session.get(reply["polling_url"])
    expect(response.status_code == 200 and response.json()["id"] == reply["id"], "200 and the task of this id")


@topic.holds(
    _RESPONSE,
    "`cost`: number or null: on endpoints whose response lists it: Cost in credits for this request",
    credits=1,
)
async def cost_is_told(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    expect("cost" in reply and (reply["cost"] is None or _is_number(reply["cost"])), "cost, a number or null")


@topic.holds(_RESPONSE, "`input_mp`: number or null: same: Input megapixels, 2 decimal places", credits=2)
async def input_megapixels_have_two_places(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    _two_places(reply, "input_mp")


@topic.holds(_RESPONSE, "`output_mp`: number or null: same: Output megapixels, 2 decimal places", credits=1)
async def output_megapixels_have_two_places(session: Session) -> None:
    reply = await session.accepted(KLEIN, {"width": 1280, "height": 704})
    _two_places(reply, "output_mp")


def _two_places(reply: Json, name: str) -> None:
    value = reply.get(name)
    if value is None:
        raise Skipped(f"{name} is null")
    expect(_is_number(value) and round(value, 2) == value, f"{name} with at most 2 decimal places")


@topic.holds(_DECIDED, "UUIDv4 string", credits=1)
async def ids_are_random_uuids(session: Session) -> None:
    task_id = (await session.accepted(KLEIN))["id"]
    try:
        version = UUID(task_id).version
    except ValueError:
        version = None
    expect(version == 4 and str(UUID(task_id)) == task_id, "a UUID of version 4")


@topic.holds(_DECIDED, "absolute, `{public_base}/v1/get_result?id=<id>`", credits=1)
async def the_address_names_the_task(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    url = urlsplit(reply["polling_url"])
    expect(bool(url.scheme and url.netloc), "an absolute URL")
    expect(url.path.endswith("/v1/get_result"), "the path /v1/get_result")
    expect(parse_qs(url.query).get("id") == [reply["id"]], "the query id=<id>")


@topic.holds(_DECIDED, "Same origin as the client used", credits=1)
async def the_address_is_where_the_client_is(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    if not same_origin(reply["polling_url"], session.target.base_url):
        raise Broken(f"the origin of {session.target.base_url}, unless another public URL is configured")


@topic.holds(_DECIDED, "always present as keys.", credits=6)
async def figures_are_always_keys(session: Session) -> None:
    for endpoint in (KLEIN, PRO):
        reply = await session.accepted(endpoint)
        expect(set(_FIGURES) <= set(reply), "the keys cost, input_mp and output_mp")


@topic.holds(
    _DECIDED,
    'Numbers on endpoints whose response lists them; `null` on those marked "`id`, `polling_url` only" and on video.',
    credits=6,
)
async def figures_are_numbers_where_listed(session: Session) -> None:
    listed, marked = await session.accepted(KLEIN), await session.accepted(PRO)
    expect(all(_is_number(listed.get(name)) for name in _FIGURES), f"numbers from {KLEIN}")
    expect(all(marked.get(name) is None for name in _FIGURES), f"null from {PRO}")


@topic.holds(_DECIDED, "1 MP = 1,048,576 px, rounded to 2 decimals", credits=2)
async def megapixels_are_of_two_to_the_twentieth(session: Session) -> None:
    for width, height in ((1024, 1024), (1280, 720)):
        reply = await session.accepted(KLEIN, {"width": width, "height": height})
        told = round(width * height / 2**20, 2)
        expect(reply["output_mp"] == told, f"output_mp {told} for {width} x {height}")


@topic.holds(
    _DECIDED,
    'the same body plus `status: "Pending"` and `webhook_url` (valid against both variants)',
    credits=1,
    needs="receiver",
)
async def with_a_webhook_more_is_told(session: Session) -> None:
    hook = session.hook()
    plain, reply = await session.accepted(KLEIN), await session.accepted(KLEIN, {"webhook_url": hook})
    expect(set(reply) == set(plain) | {"status", "webhook_url"}, "the same keys, and status and webhook_url")
    expect((reply["status"], reply["webhook_url"]) == ("Pending", hook), "status Pending and the webhook_url")


@topic.holds(_DECIDED, '404 `{"detail": "Not Found"}`')
async def unknown_paths_are_not_found(session: Session) -> None:
    for path in ("/v1/gen-of-no-model", "/v1/gen-tools/no-tool-v1"):
        text = detail(await session.post(path, {"prompt": "x"}), 404)
        expect(text.startswith("Not Found"), 'detail "Not Found"')
