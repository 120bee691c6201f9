"""`GET /v1/get_result`."""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

from serve_app.conformance.answers import Json, json_of, problems
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN
from serve_app.conformance.session import Session
from serve_app.conformance.verdicts import Skipped, expect

topic = Topic("polling")

_RESULT: Final = "Result response (polling)"
_GET: Final = "13. get_result"
_DECIDED: Final = "Decided: polling"
_KEYS: Final = ("id", "status", "result", "progress", "details", "preview")
_SLACK_S: Final = 5.0
"""What a slow network or a busy server may add."""


async def _ready(session: Session) -> Json:
    """A small picture that is ready."""
    return await session.finished(KLEIN)


async def _of(session: Session, task: Json, **options: Any) -> Json:
    return json_of(await session.poll(task["id"], **options))


async def _waiting(session: Session) -> str:
    """The id of a task that goes on for a while."""
    return (await session.accepted(KLEIN, {"width": 1024, "height": 1024, "steps": 16}))["id"]


@topic.holds("What the service does", "the final polling response carries the settled cost.", credits=1)
async def the_last_answer_has_the_cost(session: Session) -> None:
    task = await _ready(session)
    expect(isinstance(task.get("cost"), int | float), "cost, a number, at the top")


@topic.holds(_RESULT, "`id`: string: Task identifier", credits=1)
async def the_task_has_its_id(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    expect((await _of(session, reply))["id"] == reply["id"], "the id of the submission")


@topic.holds(_RESULT, "`status`: string: One of the status values in the next section", credits=1)
async def the_status_is_a_string(session: Session) -> None:
    task = await _of(session, await session.accepted(KLEIN))
    expect(isinstance(task["status"], str), "status, a string")


@topic.holds(_RESULT, "`result`: any or null: The generated output; null in the shape example", credits=1)
async def a_ready_task_has_a_result(session: Session) -> None:
    expect((await _ready(session)).get("result") is not None, "a result")


@topic.holds(_RESULT, "`progress`: number: Progress indicator", credits=1)
async def progress_is_a_number(session: Session) -> None:
    progress = (await _ready(session)).get("progress")
    expect(isinstance(progress, int | float) and not isinstance(progress, bool), "progress, a number, once Ready")


@topic.holds(_RESULT, "`cost`: number: Settled cost in credits (in the variant that carries it)", credits=1)
async def the_cost_is_that_of_the_submission(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    task = await session.end_of(reply["id"])
    if reply.get("cost") is None:
        raise Skipped("the submission names no cost")
    expect(task.get("cost") == reply["cost"], f"cost {reply['cost']}")


@topic.holds(_GET, "Returns the result response described above, or the validation error body on 422.")
async def a_poll_without_an_id_is_invalid(session: Session) -> None:
    response = await session.get("/v1/get_result", key="")
    expect(response.status_code == 422, "422 without an id")
    problems(response)


@topic.holds(_GET, "The address to poll is the `polling_url` returned at submission.", credits=1)
async def the_polling_url_answers(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    response = await session.get(reply["polling_url"], key="")
    expect(response.status_code == 200 and json_of(response)["id"] == reply["id"], "200 and the task")


@topic.holds("Errors", "An unknown task has status `Task not found`.")
async def unknown_tasks_say_so(session: Session) -> None:
    task = json_of(await session.poll(str(uuid.uuid4())))
    expect(task.get("status") == "Task not found", "status Task not found")


@topic.holds(_DECIDED, "`id`, required (missing: 422).")
async def the_id_is_required(session: Session) -> None:
    entries = problems(await session.get("/v1/get_result", key=""))
    expect(any("id" in entry["loc"] for entry in entries), "that detail[].loc names id")


@topic.holds(_DECIDED, "Optional `wait` (seconds, 0 to 60)")
async def wait_has_bounds(session: Session) -> None:
    for value in ("-1", "61", "soon"):
        response = await session.poll(str(uuid.uuid4()), params={"wait": value})
        expect(response.status_code == 422, f"422 for wait={value}")
        expect(any("wait" in entry["loc"] for entry in problems(response)), "that detail[].loc names wait")


@topic.holds(
    _DECIDED, "answer as soon as the task is terminal, or when the wait is over, whichever is first", credits=2
)
async def a_poll_may_wait(session: Session) -> None:
    ready, began = await _ready(session), time.monotonic()
    await _of(session, ready, params={"wait": 30})
    expect(time.monotonic() - began < _SLACK_S, "an answer at once for a task that is terminal")
    waiting, began = await _waiting(session), time.monotonic()
    task = json_of(await session.poll(waiting, params={"wait": 1}))
    took = time.monotonic() - began
    expect(took < 1 + _SLACK_S, "an answer when the wait is over")
    expect(task["status"] == "Ready" or took >= 0.9, "no answer before the wait is over or the task has ended")


@topic.holds(_DECIDED, "no key needed: the UUID is the capability.", credits=1)
async def polling_needs_no_key(session: Session) -> None:
    response = await session.poll((await session.accepted(KLEIN))["id"])
    expect(response.status_code == 200, "200 without a key")


@topic.holds(_DECIDED, "A key that is sent is ignored", credits=1)
async def polling_ignores_keys(session: Session) -> None:
    reply = await session.accepted(KLEIN)
    response = await session.poll(reply["id"], headers={"x-key": "gen_no-such-key"})
    expect(response.status_code == 200, "200 with a wrong key")


@topic.holds(
    _DECIDED,
    "always all of `id, status, result, progress, details, preview`, nulls allowed; top-level `cost` once settled",
    credits=1,
)
async def all_keys_are_there(session: Session) -> None:
    early = await _of(session, await session.accepted(KLEIN))
    for task in (early, await _ready(session)):
        expect(set(_KEYS) <= set(task), f"the keys {', '.join(_KEYS)}")


@topic.holds(_DECIDED, "200 for every known task whatever its status", credits=1)
async def known_tasks_are_200(session: Session) -> None:
    response = await session.poll((await session.accepted(KLEIN))["id"])
    expect(response.status_code == 200, "200")


@topic.holds(_DECIDED, 'unknown or expired id: **404** with the same body shape and `status: "Task not found"`')
async def unknown_tasks_are_404(session: Session) -> None:
    response = await session.poll(str(uuid.uuid4()))
    expect(response.status_code == 404, "404")
    task = json_of(response)
    expect(set(_KEYS) <= set(task), f"the keys {', '.join(_KEYS)}")
    expect(task["status"] == "Task not found", "status Task not found")


@topic.holds(_DECIDED, "null until `Ready`.", credits=1)
async def there_is_no_early_result(session: Session) -> None:
    task = json_of(await session.poll(await _waiting(session)))
    expect(task["status"] == "Ready" or task["result"] is None, "result null")


@topic.holds(_DECIDED, "`progress`: 0.0 to 1.0, never falls; null when not known", credits=2)
async def progress_never_falls(session: Session) -> None:
    highest, task = 0.0, {}
    async for response in session.answers(await _waiting(session)):
        task = json_of(response)
        progress = task["progress"]
        if progress is not None:
            expect(highest <= progress <= 1.0, f"progress from {highest} to 1.0, not {progress}")
            highest = progress
    expect(task["status"] != "Ready" or task["progress"] == 1.0, "progress 1.0 once Ready")


@topic.holds(_DECIDED, 'null, or `{"sample": url, "step": n, "steps": m}` for endpoints that make previews', credits=1)
async def previews_have_their_form(session: Session) -> None:
    preview = (await _of(session, {"id": await _waiting(session)}))["preview"]
    expect(preview is None or set(preview) == {"sample", "step", "steps"}, "null, or sample, step and steps")


@topic.holds(
    _DECIDED,
    '`details`: null; `{"Moderation Reasons": [..]}` when moderated; `{"error": "<what the client can act on>"}` on '
    "`Error`",
    credits=1,
)
async def details_are_null_or_an_object(session: Session) -> None:
    details = (await _ready(session))["details"]
    expect(details is None or isinstance(details, dict), "details, null or an object")


@topic.holds(_DECIDED, "`Retry-After` while not terminal", credits=1)
async def waiting_tasks_say_when_to_come_back(session: Session) -> None:
    response = await session.poll(await _waiting(session))
    if json_of(response)["status"] == "Ready":
        raise Skipped("the task was ready at once")
    expect(response.headers.get("retry-after", "").isdigit(), "Retry-After, whole seconds")


@topic.holds(_DECIDED, "`ETag` and 304", credits=1)
async def polls_can_be_conditional(session: Session) -> None:
    task = await _ready(session)
    first = await session.poll(task["id"])
    tag = first.headers.get("etag")
    expect(bool(tag), "an ETag")
    again = await session.poll(task["id"], headers={"If-None-Match": tag or ""})
    expect(again.status_code == 304 and not again.content, "304 without a body")
