"""What becomes of a task."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Final

from serve_app.conformance.answers import Json, json_of
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import KLEIN, KONTEXT
from serve_app.conformance.session import TERMINAL, WAITING, Session
from serve_app.conformance.verdicts import Broken, Skipped, expect

topic = Topic("statuses")

_SECTION: Final = "States and transitions"
_DECIDED: Final = "Decided: polling"
_STATUSES: Final = TERMINAL | WAITING | {"Task not found"}
_NEXT: Final = {
    "Pending": {"Reasoning", "Generating"} | TERMINAL,
    "Reasoning": {"Pending", "Generating"} | TERMINAL,
    "Generating": {"Pending"} | TERMINAL,
}
"""Which may follow which; the way back to `Pending` is that of a worker that was lost."""
_STRICT_CLIENT: Final = "ai/7.0.173 ai-sdk/provider-utils/5.0.40 runtime/node.js/v20.19.0"
"""As the AI SDK sends it, which rejects statuses that it does not know."""
_FORBIDDEN: Final = "a very bloody murder scene"
_STRICT: Final = {"prompt": _FORBIDDEN, "safety_tolerance": 0}


async def _life(session: Session) -> list[Json]:
    """All answers about one task, from submission to end, of which every one differs from the one before."""
    if "life" not in session.target.finished:
        reply = await session.accepted(KLEIN, {"width": 1024, "height": 1024, "steps": 16})
        seen: list[Json] = []
        with contextlib.suppress(Broken):  # a status that there is not is for the check of statuses to tell
            async for response in session.answers(reply["id"]):
                if not seen or json_of(response) != seen[-1]:
                    seen.append(json_of(response))
        expect(seen[-1]["status"] not in WAITING, f"that the task ends within {session.target.task_s:g} s")
        session.target.finished["life"] = {"seen": seen}
    return session.target.finished["life"]["seen"]


async def _moderated(session: Session) -> Json:
    reply = await session.accepted(KLEIN, _STRICT)
    task = await session.end_of(reply["id"])
    if task["status"] == "Ready":
        raise Skipped("this server's moderation lets the prompt pass")
    return task


@topic.holds(_SECTION, "The `status` field of a polling response takes these values", credits=1)
async def statuses_are_those_of_the_table(session: Session) -> None:
    found = {task["status"] for task in await _life(session)}
    expect(found <= _STATUSES, f"none but the eight statuses, not {found - _STATUSES}")


@topic.holds(_SECTION, "`Ready`: Output is available", credits=1)
async def ready_tasks_have_output(session: Session) -> None:
    last = (await _life(session))[-1]
    expect(last["status"] == "Ready" and last["result"] is not None, "status Ready and a result")


@topic.holds(_SECTION, "`Pending`: Task is queued", credits=1)
async def tasks_begin_before_their_end(session: Session) -> None:
    first = (await _life(session))[0]["status"]
    expect(first in ("Pending", "Reasoning", "Generating"), f"a status before the end at first, not {first}")


@topic.holds(_SECTION, "`Task not found`: No task matches the identifier")
async def other_ids_are_no_tasks(session: Session) -> None:
    task = json_of(await session.poll("no-such-task"))
    expect(task.get("status") == "Task not found", "status Task not found")


@topic.holds(_SECTION, "`Request Moderated`: Input was flagged at submission", credits=1)
async def inputs_are_moderated(session: Session) -> None:
    task = await _moderated(session)
    expect(task["status"] == "Request Moderated", "Request Moderated")


@topic.holds(_SECTION, "Both moderated states carry `Moderation Reasons` in `details`.", credits=1)
async def reasons_are_told(session: Session) -> None:
    reasons = ((await _moderated(session))["details"] or {}).get("Moderation Reasons")
    named = isinstance(reasons, list) and bool(reasons) and all(isinstance(reason, str) for reason in reasons)
    expect(named, "details with Moderation Reasons, an array of category names")


@topic.holds("Errors", "Moderation outcomes are not HTTP errors", credits=1)
async def moderation_is_no_http_error(session: Session) -> None:
    response = await session.submit(KLEIN, {"steps": 1, "width": 64, "height": 64, **_STRICT})
    expect(response.status_code == 200, "200 at submission")
    await session.end_of(json_of(response)["id"])
    poll = await session.poll(json_of(response)["id"])
    expect(poll.status_code == 200, "200 at polling")


@topic.holds(
    _DECIDED,
    "`Pending` → `Reasoning` (only when a prompt is rewritten or a ratio is chosen) → `Generating` → `Ready`.",
    credits=1,
)
async def statuses_follow_each_other(session: Session) -> None:
    seen = [task["status"] for task in await _life(session)]
    for before, after in pairwise(seen):
        expect(before == after or after in _NEXT.get(before, set()), f"no {after} after {before}")
    expect("Reasoning" not in seen, "no Reasoning, as neither prompt nor ratio is open")


@topic.holds(_DECIDED, "A terminal status never changes", credits=1)
async def the_end_is_the_end(session: Session) -> None:
    last = (await _life(session))[-1]
    again = json_of(await session.poll(last["id"]))
    expect(again["status"] == last["status"], f"{last['status']} for ever")


@topic.holds(
    _DECIDED,
    "`basic`: `Reasoning` and `Generating` reported as `Pending`, because some published clients reject strings they "
    "don't know.",
    credits=4,
)
async def strict_clients_know_every_status(session: Session) -> None:
    reply = await session.accepted(KONTEXT)
    strict = {"User-Agent": _STRICT_CLIENT}
    async for response in session.answers(reply["id"], headers=strict):
        status = json_of(response)["status"]
        expect(status in TERMINAL | {"Pending"}, f"Pending, not {status}, for a client that knows no more")
        expect("user-agent" in response.headers.get("vary", "").lower(), "Vary: User-Agent")
