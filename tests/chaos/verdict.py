"""Checks the promises against the journal, the database and the object store."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import httpx2
from PIL import Image
from redis.asyncio import Redis
from support.local_service import LocalService

from chaos.faults import DEPLOY
from chaos.load import TERMINAL, Journal, TaskRecord
from chaos.nodes import ClusterService
from chaos.testbed import ON_DEMAND, ClusterTestbed, Testbed
from serve_app.encryption import AtRest
from serve_app.tasks.task import TRANSITIONS, Status

Records: TypeAlias = Mapping[str, Mapping[str, str]]
"""Records of all tasks by id, unsealed."""
_MAX_EXAMPLES: Final = 5
_ROUNDED_S: Final = 0.01
_DOWNSCALE_LIMIT_S: Final = 120.0
_PERMANENT_KEYS: Final = re.compile(
    r"gen:(task:|tasks:|stats:|clock:|fair:|idempotency:|retention$|timings:|failed:|pace:|work:|demand:|recent:|setup:|"
    r"device|dispatcher$|idle:|memory$|watch:|tally:|made$|paid$|rate:|call:|replicated$|secret:|deliver|attempts:|undelivered$|"
    r"credits:|ledger:|grants:|spent:|usage:|key|project|organization|member|audit|destination:)"
)
"""Keys that remain when all tasks have ended."""


@dataclass(frozen=True, slots=True)
class PromiseResult:
    promise: str
    measured: str
    wrong: tuple[str, ...] = ()
    """Examples of violations."""

    @property
    def passed(self) -> bool:
        return not self.wrong


def _make_result(promise: str, measured: str, wrong: Sequence[str]) -> PromiseResult:
    more = [f"and {len(wrong) - _MAX_EXAMPLES} more"] if len(wrong) > _MAX_EXAMPLES else []
    return PromiseResult(promise, measured, (*wrong[:_MAX_EXAMPLES], *more))


async def check_promises(
    journal: Journal, testbed: Testbed, store: Redis, http: httpx2.AsyncClient
) -> list[PromiseResult]:
    tasks = await read_records(store, testbed.at_rest)
    counted: Counter[str] = Counter()
    async for key in store.scan_iter("gen:stats:*", count=10_000):
        counted.update({k: int(v) for k, v in (await _hash(store, key)).items()})
    entries = await cast(Awaitable[list[tuple[str, dict[str, str]]]], store.xrange("gen:ledger:default"))
    results = [
        _accepted_tasks_end(journal, counted, tasks),
        _refusals_are_clear(journal),
        _statuses_are_legal(journal, tasks),
        check_ledger(await _hash(store, "gen:credits:default"), tasks, [entry for _, entry in entries]),
        await _results_open(tasks, http),
        _durations_are_possible(tasks),
        _webhooks_arrived(journal, tasks),
        _make_result(
            "a dead destination delays no other",
            f"{journal.backlog} webhooks waited for it, {len(journal.delayed)} of others",
            journal.delayed,
        ),
        _make_result("every call is signed", f"{sum(map(len, journal.calls.values()))} calls", journal.forged),
        await _no_leftovers(store, tasks),
        _no_orphaned_objects(testbed.objects, tasks),
    ]
    if isinstance(testbed, ClusterTestbed):
        struck = [f"drain {number}: {count} crashes" for number, count in enumerate(testbed.drained, start=1) if count]
        unclear = [message for during, message in journal.unclear if during == DEPLOY]
        results += [
            _make_result("work on a drained node costs no crash", f"{len(testbed.drained)} drains", struck),
            _make_result(
                "responses of 5xx during a deployment say when to retry",
                f"{len(unclear)} without it",
                unclear,
            ),
            await _on_demand_queue_scales(tasks, testbed),
        ]
    return results


async def read_records(store: Redis, at_rest: AtRest) -> Records:
    pipe = store.pipeline(transaction=False)
    async for key in store.scan_iter("gen:task:*", count=1000):
        pipe.hgetall(key)
    sealed = ("result", "details")
    return {
        row["id"]: row | {name: at_rest.open(row[name]) for name in sealed if name in row}
        for row in await pipe.execute()
    }


def check_no_processes(service: LocalService) -> PromiseResult:
    remaining = [f"{process.pid}: {' '.join(process.cmdline())[:100]}" for process in service.processes()]
    return _make_result("no process is left", f"{len(remaining)} processes", remaining)


def check_other_application(service: ClusterService) -> PromiseResult:
    measured = (
        f"{service.requests} requests while ours was deployed, changed and removed, {len(service.disturbed)} failed"
    )
    return _make_result("another application answers", measured, service.disturbed)


def failed_without_cancel(row: Mapping[str, str], record: TaskRecord | None) -> bool:
    """Returns whether the task failed although its client did not cancel it."""
    by_client = record is not None and record.cancelled and "Cancelled by the client" in row.get("details", "")
    return row["status"] in TERMINAL and row["status"] != "Ready" and not by_client


def _accepted_tasks_end(journal: Journal, counted: Mapping[str, int], tasks: Records) -> PromiseResult:
    """Checks that every accepted task ended, and that none exists twice or unknown to its client."""
    lost = [f"{i}: lost" for i in journal.accepted if i not in tasks]
    wrong = [*lost, *(f"{i}: {row['status']}" for i, row in tasks.items() if row["status"] not in TERMINAL)]
    ended = sum(counted.get(name, 0) for name in TERMINAL)
    if not counted.get("accepted") == ended == len(tasks):
        wrong.append(f"accepted {counted.get('accepted')}, ended {ended}")
    wrong += [
        f"{i}: {row['status']}, though not cancelled: {row.get('details')}"
        for i, row in tasks.items()
        if failed_without_cancel(row, journal.accepted.get(i))
    ]
    # A client whose response was lost retried with its idempotency key, so each knows its task.
    wrong += [f"{i}: unknown to its client" for i in tasks if i not in journal.accepted]
    statuses = Counter(row["status"] for row in tasks.values())
    summary = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    return _make_result(
        "accepted = ended, once each", f"{len(journal.accepted)} accepted, {len(lost)} lost: {summary}", wrong
    )


def _refusals_are_clear(journal: Journal) -> PromiseResult:
    """Checks that valid requests are only rejected with 5xx, or 429 with Retry-After."""
    counted = Counter(refusal.status_code for refusal in journal.refused)
    wrong = [
        f"HTTP {refusal.status_code}: {refusal.text[:200]}"
        for refusal in journal.refused
        if refusal.status_code < 500 and not (refusal.status_code == 429 and "retry-after" in refusal.headers)
    ]
    return _make_result("refused only for now", f"{len(journal.refused)} refusals {dict(counted) or ''}", wrong)


def _statuses_are_legal(journal: Journal, tasks: Records) -> PromiseResult:
    """Checks that clients only saw legal changes of status, and none after the end."""
    wrong: list[str] = []
    pairs = polls = 0
    for record in journal.accepted.values():
        statuses = [poll["status"] for poll in record.polls]
        polls += len(statuses)
        if record.id in tasks and statuses and statuses[-1] in TERMINAL:
            statuses.append(tasks[record.id]["status"])
        for before, after in itertools.pairwise(statuses):
            pairs += 1
            if not _is_reachable(Status(before), Status(after)):
                wrong.append(f"{record.id}: {before}, then {after}")
    return _make_result("no illegal change of status", f"{polls} polls, {pairs} changes looked at", wrong)


def _is_reachable(before: Status, after: Status) -> bool:
    """Returns whether `after` follows in any number of steps; polls can miss some."""
    reachable, fresh = {before}, {before}
    while fresh:
        fresh = {following for state in fresh for following in TRANSITIONS[state]} - reachable
        reachable |= fresh
    return after in reachable


def check_ledger(credits: Mapping[str, str], tasks: Records, ledger: Sequence[Mapping[str, str]]) -> PromiseResult:
    """Checks that nothing is held, and that each task's price was held and settled once."""
    wrong: list[str] = []
    spent = sum(int(row.get("cost", 0)) for row in tasks.values())
    oldest = ledger[0] if ledger else {"balance": 0, "amount": 0}
    opening = int(oldest["balance"]) - int(oldest["amount"])  # before the stream's oldest entry
    moved = opening + sum(int(entry["amount"]) for entry in ledger)
    hold_amount, balance = int(credits.get("held", 0)), int(credits["balance"])
    if hold_amount:
        wrong.append(f"{hold_amount} still held")
    if int(credits["spent"]) != spent:
        wrong.append(f"spent {credits['spent']}, tasks cost {spent}")
    if balance != moved or int(credits["granted"]) - spent != moved:
        wrong.append(f"balance {balance}, ledger {moved}, granted {credits['granted']} less {spent}")
    amounts: Counter[str] = Counter()
    kinds: Counter[tuple[str, bool]] = Counter()
    for entry in ledger:
        if "task" in entry:
            amounts[entry["task"]] += int(entry["amount"])
            kinds[entry["task"], entry["kind"] == "hold"] += 1
    wrong += [f"{task}: booked {times} times" for (task, _), times in kinds.items() if times > 1]
    costs = {task: int(row.get("cost", 0)) for task, row in tasks.items() if row["status"] in TERMINAL}
    wrong += [f"{task}: cost {cost}, booked {amounts[task]}" for task, cost in costs.items() if amounts[task] != -cost]
    summary = f"off by {balance - moved}, held {hold_amount}, {len(ledger)} entries"
    return _make_result("ledger = tasks, nothing held", summary, wrong)


async def _results_open(tasks: Records, http: httpx2.AsyncClient) -> PromiseResult:
    ready = [i for i, row in tasks.items() if row["status"] == "Ready"]
    limit = asyncio.Semaphore(16)

    async def problem(task_id: str) -> str | None:
        async with limit:
            body = (await http.get("/v1/get_result", params={"id": task_id})).json()
            answer = await http.get(body["result"]["sample"], headers={"x-key": ""})
        if answer.status_code != 200:
            return f"{task_id}: HTTP {answer.status_code}"
        try:
            await asyncio.to_thread(lambda: Image.open(BytesIO(answer.content)).load())
        except OSError as error:
            return f"{task_id}: {error}"
        return None

    problems = [each for each in await asyncio.gather(*map(problem, ready)) if each]
    return _make_result("every result opens", f"{len(ready)} images", problems)


def _durations_are_possible(tasks: Records) -> PromiseResult:
    """Checks by Redis' clock that each duration is between 0 and the task's age."""
    wrong, count = [], 0
    for task_id, row in tasks.items():
        if row["status"] == "Ready":
            count += 1
            took, lived = json.loads(row["result"])["duration"], (int(row["finished"]) - int(row["created"])) / 1000
            if not 0 <= took <= lived + _ROUNDED_S:
                wrong.append(f"{task_id}: {took} s of {lived} s")
    return _make_result("every duration is possible", f"{count} durations", wrong)


def _webhooks_arrived(journal: Journal, tasks: Records) -> PromiseResult:
    """Checks that each webhook came, always with the body of the last poll; signatures of links may differ."""
    expected = {i for i, row in tasks.items() if "webhook_url" in row}
    wrong = [f"{i}: not requested" for i in journal.calls if i not in expected]
    for task_id in expected & journal.accepted.keys():
        record = journal.accepted[task_id]
        if task_id not in journal.delivered:
            wrong.append(f"{task_id}: never delivered ({record.hook})")
        bodies = [_strip_signature(body) for body in journal.calls[task_id]]
        if any(body != bodies[0] for body in bodies):
            wrong.append(f"{task_id}: {len(bodies)} different bodies")
        polls = [poll for poll in record.polls if poll["status"] in TERMINAL]
        if bodies and polls and _strip_signature(polls[-1]) != bodies[0]:
            wrong.append(f"{task_id}: polling has another body")
    calls = sum(map(len, journal.calls.values()))
    summary = f"{len(expected)} webhooks in {calls} calls, {len(expected - journal.delivered)} missing"
    return _make_result("every webhook arrived, with one body", summary, wrong)


async def _no_leftovers(store: Redis, tasks: Collection[str]) -> PromiseResult:
    """Checks that no lease, queue entry, claim or unknown key is left."""
    keys = [key async for key in store.scan_iter("gen:*", count=1000)]
    strange = [key for key in keys if not _PERMANENT_KEYS.match(key)]
    owned = [key for key in keys if key.startswith(("gen:delivery:", "gen:attempts:"))]
    strange += [key for key in owned if key.rpartition(":")[2] not in tasks]
    return _make_result("no lease or entry is left over", f"{len(keys)} keys", strange)


def _no_orphaned_objects(objects: Path, tasks: Collection[str]) -> PromiseResult:
    files = [path.relative_to(objects) for path in objects.rglob("*") if path.is_file()]
    orphans = [str(path) for path in files if len(path.parts) < 2 or path.parts[1] not in tasks]
    return _make_result("every object belongs to a task", f"{len(files)} objects", orphans)


async def _on_demand_queue_scales(tasks: Records, testbed: ClusterTestbed) -> PromiseResult:
    """Checks that the queue without minimum replicas processed its tasks and scaled back to zero."""
    ready = [row["status"] == "Ready" for row in tasks.values() if row["queue"] == ON_DEMAND]
    deadline = time.monotonic() + _DOWNSCALE_LIMIT_S
    name = f"ServeReplica:gen:{ON_DEMAND}"
    while (replicas := await asyncio.to_thread(testbed.service.processes, name)) and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    wrong = [f"{len(replicas)} replicas are left"] if replicas else []
    wrong += ["none of its tasks was done"] if ready and not any(ready) else []
    return _make_result("a queue comes from zero and goes back", f"{sum(ready)} of {len(ready)} tasks done", wrong)


def _strip_signature(body: Mapping[str, Any]) -> dict[str, Any]:
    """Removes the query of the result's link, which is signed anew each time."""
    result = body["result"]
    return {**body, "result": result and {**result, "sample": result["sample"].partition("?")[0]}}


async def _hash(store: Redis, key: str) -> dict[str, str]:
    return await cast(Awaitable[dict[str, str]], store.hgetall(key))
