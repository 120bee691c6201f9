"""`GET /v1/get_result`, and the files that results lead to."""

from __future__ import annotations

import time
import uuid
from typing import Any, Final
from urllib.parse import urlsplit

from serve_app.conformance import pictures
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN, PRO
from serve_app.conformance.session import Json, Session, json_of, problems, same_origin
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


@topic.holds(
    _DECIDED,
    'Then `{"sample": url, "prompt": str, "seed": int, "start_time": float, "end_time": float, "duration": float}`',
    credits=1,
)
async def the_result_has_its_parts(session: Session) -> None:
    result = (await _ready(session))["result"]
    texts, times = ("sample", "prompt"), ("start_time", "end_time", "duration")
    expect(all(isinstance(result.get(name), str) for name in texts), "sample and prompt, strings")
    expect(type(result.get("seed")) is int, "seed, an integer")
    expect(all(isinstance(result.get(name), int | float) for name in times), "start_time, end_time, duration, numbers")


@topic.holds(_DECIDED, "epoch seconds; `duration` is processing seconds", credits=1)
async def times_are_epoch_seconds(session: Session) -> None:
    result = (await _ready(session))["result"]
    start, end, now = result["start_time"], result["end_time"], time.time()
    expect(start <= end <= now + 3600 and end > now - 7 * 86400, "start_time and end_time in epoch seconds")
    expect(0 <= result["duration"] <= end - start + 1, "duration, seconds of processing")


@topic.holds(_DECIDED, "`prompt` is the one really used (after upsampling).", credits=1)
async def the_prompt_is_told(session: Session) -> None:
    prompt = (await _ready(session))["result"]["prompt"]
    expect(prompt.startswith("a red circle"), "the prompt, or what it was made of")


@topic.holds(_DECIDED, "A key with no value is left out, never null.", credits=1)
async def results_have_no_nulls(session: Session) -> None:
    result = (await _ready(session))["result"]
    expect(all(value is not None for value in result.values()), "no null in result")


@topic.holds("Common field types", "reproducibility", credits=2)
async def seeds_make_the_same_picture(session: Session) -> None:
    files = []
    for number in (1, 2):
        # The second request differs by what does not show, so that no task is shared.
        task = await session.finished(KLEIN, {"seed": 7, "output_format": "png", "user": f"conformance-{number}"})
        expect(task["result"]["seed"] == 7, "seed 7 in the result")
        files.append(pictures.opened(await session.picture(task)).convert("RGB").tobytes())
    expect(files[0] == files[1], "the same pixels for the same seed and request")


@topic.holds("1. gen-3-image-klein", "`output_format`: string: `jpeg`", credits=1)
async def pictures_are_jpeg_by_default(session: Session) -> None:
    found = pictures.opened(await session.picture(await _ready(session)))
    expect(found.format == "JPEG", f"a JPEG, not {found.format}")


@topic.holds("1. gen-3-image-klein", "Exact width in pixels", credits=1)
async def pictures_have_the_size_asked_for(session: Session) -> None:
    size = pictures.size_of(await session.picture(await _ready(session)))
    expect(size == (64, 64), f"64 x 64 pixels, not {size[0]} x {size[1]}")


@topic.holds("1. gen-3-image-klein", "First item is the image being edited and sets the default output size", credits=1)
async def references_set_the_size(session: Session) -> None:
    body = {"images": [pictures.photo(128, 80)], "width": None, "height": None}
    size = pictures.size_of(await session.picture(await session.finished(KLEIN, body)))
    expect(abs(size[0] / size[1] - 1.6) < 0.1, f"the ratio of the first item, 1.6, not {size[0]} x {size[1]}")


@topic.holds("5. gen-pro", "`width`: integer: 1024", credits=5)
async def pro_has_a_size_by_default(session: Session) -> None:
    reply = await session.submit(PRO, {"prompt": "a red circle", "steps": 1})
    task = await session.end_of(json_of(reply)["id"])
    expect(task["status"] == "Ready", "Ready")
    size = pictures.size_of(await session.picture(task))
    expect(size == (1024, 768), f"1024 x 768 pixels, not {size[0]} x {size[1]}")


@topic.holds(_DECIDED, "absolute URL, same origin as `polling_url` for the local store", credits=1)
async def samples_are_absolute(session: Session) -> None:
    link = (await _ready(session))["result"]["sample"]
    expect(bool(urlsplit(link).scheme and urlsplit(link).netloc), "an absolute URL")
    if not same_origin(link, session.target.base_url):
        raise Skipped("results are at an object store")


@topic.holds(_DECIDED, "signed query, no header needed, CORS open, right `Content-Type`, range requests", credits=1)
async def links_open_files(session: Session) -> None:
    link = (await _ready(session))["result"]["sample"]
    response = await session.get(link, key="", headers={"Origin": "https://example.com"})
    expect(response.status_code == 200, "200 without any key")
    expect(response.headers.get("content-type") == "image/jpeg", "Content-Type: image/jpeg")
    part = await session.get(link, key="", headers={"Range": "bytes=0-3"})
    expect((part.status_code, part.content) == (206, response.content[:4]), "206 and the first four bytes")
    if same_origin(link, session.target.base_url):
        expect(response.headers.get("access-control-allow-origin") == "*", "Access-Control-Allow-Origin: *")
        bare = await session.get(link.partition("?")[0], key="")
        expect(bare.status_code in (401, 403), "403 without the signature")


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
