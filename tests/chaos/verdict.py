"""The promises, checked against what was seen from outside and what is left inside."""

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

from chaos.faults import DEPLOYED
from chaos.load import TERMINAL, Journal, TaskRecord
from chaos.nodes import ClusterService
from chaos.service import ON_DEMAND, NodesStage, Stage
from serve_app.encryption import AtRest
from serve_app.tasks.task import TRANSITIONS, Status

Records: TypeAlias = Mapping[str, Mapping[str, str]]
"""Of all tasks, by id, as they read."""
_MAX_EXAMPLES: Final = 5
"""Examples of what is wrong."""
_ROUNDED_S: Final = 0.01
_GONE_WITHIN_S: Final = 120.0
_PERMANENT_KEYS: Final = re.compile(
    r"gen:(task:|tasks:|stats:|clock:|fair:|idempotency:|retention$|timings:|failed:|pace:|work:|demand:|recent:|setup:|"
    r"device|dispatcher$|idle:|memory$|watch:|tally:|made$|paid$|rate:|call:|replicated$|secret:|deliver|attempts:|undelivered$|"
    r"credits:|ledger:|grants:|spent:|usage:|key|project|organization|member|audit|destination:)"
)
"""What may be there when nothing is on its way."""


@dataclass(frozen=True, slots=True)
class Finding:
    promise: str
    measured: str
    wrong: tuple[str, ...] = ()
    """Examples, when it was not kept."""

    @property
    def passed(self) -> bool:
        return not self.wrong


def _make_finding(promise: str, measured: str, wrong: Sequence[str]) -> Finding:
    more = [f"and {len(wrong) - _MAX_EXAMPLES} more"] if len(wrong) > _MAX_EXAMPLES else []
    return Finding(promise, measured, (*wrong[:_MAX_EXAMPLES], *more))


async def classify(journal: Journal, stage: Stage, store: Redis, http: httpx2.AsyncClient) -> list[Finding]:
    tasks = await records(store, stage.at_rest)
    counted: Counter[str] = Counter()
    async for key in store.scan_iter("gen:stats:*", count=10_000):
        counted.update({k: int(v) for k, v in (await _hash(store, key)).items()})
    entries = await cast(Awaitable[list[tuple[str, dict[str, str]]]], store.xrange("gen:ledger:default"))
    findings = [
        _accepted_tasks_end(journal, counted, tasks),
        _refusals_are_clear(journal),
        _statuses_are_legal(journal, tasks),
        books_balance(await _hash(store, "gen:credits:default"), tasks, [entry for _, entry in entries]),
        await _results_open(tasks, http),
        _durations_are_possible(tasks),
        _webhooks_arrived(journal, tasks),
        _make_finding(
            "a dead destination delays nobody",
            f"{journal.backlog} webhooks waited for it, {len(journal.delayed)} of others",
            journal.delayed,
        ),
        _make_finding("every call is signed", f"{sum(map(len, journal.calls.values()))} calls", journal.forged),
        await _no_leftovers(store, tasks),
        _no_orphaned_objects(stage.objects, tasks),
    ]
    if isinstance(stage, NodesStage):
        struck = [f"drain {number}: {count} crashes" for number, count in enumerate(stage.drained, start=1) if count]
        unclear = [message for during, message in journal.unclear if during == DEPLOYED]
        findings += [
            _make_finding("work on a drained node costs no crash", f"{len(stage.drained)} drains", struck),
            _make_finding(
                "what a deployment refuses is told when to come again",
                f"{len(unclear)} answers of 5xx that did not say",
                unclear,
            ),
            await _on_demand_queue_scales(tasks, stage),
        ]
    return findings


async def records(store: Redis, at_rest: AtRest) -> Records:
    pipe = store.pipeline(transaction=False)
    async for key in store.scan_iter("gen:task:*", count=1000):
        pipe.hgetall(key)
    sealed = ("result", "details")
    return {
        row["id"]: row | {name: at_rest.open(row[name]) for name in sealed if name in row}
        for row in await pipe.execute()
    }


def no_processes(service: LocalService) -> Finding:
    remaining = [f"{process.pid}: {' '.join(process.cmdline())[:100]}" for process in service.processes()]
    return _make_finding("no process is left", f"{len(remaining)} processes", remaining)


def check_other_application(service: ClusterService) -> Finding:
    measured = (
        f"{service.requests} requests while ours was deployed, changed and removed, {len(service.disturbed)} failed"
    )
    return _make_finding("another application answers", measured, service.disturbed)


def ended_wrongly(row: Mapping[str, str], record: TaskRecord | None) -> bool:
    """Whether the task ended as anything but Ready for another reason than that its client cancelled it."""
    by_client = record is not None and record.cancelled and "Cancelled by the client" in row.get("details", "")
    return row["status"] in TERMINAL and row["status"] != "Ready" and not by_client


def _accepted_tasks_end(journal: Journal, counted: Mapping[str, int], tasks: Records) -> Finding:
    """Every task a client was promised ended, and none is there twice or unasked for."""
    lost = [f"{i}: lost" for i in journal.accepted if i not in tasks]
    wrong = [*lost, *(f"{i}: {row['status']}" for i, row in tasks.items() if row["status"] not in TERMINAL)]
    ended = sum(counted.get(name, 0) for name in TERMINAL)
    if not counted.get("accepted") == ended == len(tasks):
        wrong.append(f"accepted {counted.get('accepted')}, ended {ended}")
    wrong += [
        f"{i}: {row['status']}, though nobody cancelled it: {row.get('details')}"
        for i, row in tasks.items()
        if ended_wrongly(row, journal.accepted.get(i))
    ]
    # A client whose answer was lost asked again with its key, so each knows its task.
    wrong += [f"{i}: nobody was told" for i in tasks if i not in journal.accepted]
    statuses = Counter(row["status"] for row in tasks.values())
    summary = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    return _make_finding(
        "accepted = ended, once each", f"{len(journal.accepted)} accepted, {len(lost)} lost: {summary}", wrong
    )


def _refusals_are_clear(journal: Journal) -> Finding:
    """A request that is in order is only ever put off, and told for how long."""
    counted = Counter(refusal.status_code for refusal in journal.refused)
    wrong = [
        f"HTTP {refusal.status_code}: {refusal.text[:200]}"
        for refusal in journal.refused
        if refusal.status_code < 500 and not (refusal.status_code == 429 and "retry-after" in refusal.headers)
    ]
    return _make_finding("refused only for now", f"{len(journal.refused)} refusals {dict(counted) or ''}", wrong)


def _statuses_are_legal(journal: Journal, tasks: Records) -> Finding:
    """No client saw a step that there is none of, nor anything after the end but the end."""
    wrong: list[str] = []
    pairs = polls = 0
    for record in journal.accepted.values():
        statuses = [poll["status"] for poll in record.polls]
        polls += len(statuses)
        if record.id in tasks and statuses and statuses[-1] in TERMINAL:
            statuses.append(tasks[record.id]["status"])
        for before, after in itertools.pairwise(statuses):
            pairs += 1
            if not _leads_to(Status(before), Status(after)):
                wrong.append(f"{record.id}: {before}, then {after}")
    return _make_finding("no illegal change of status", f"{polls} polls, {pairs} changes looked at", wrong)


def _leads_to(before: Status, after: Status) -> bool:
    """In any number of steps: those between two polls may go unseen."""
    reachable, fresh = {before}, {before}
    while fresh:
        fresh = {following for state in fresh for following in TRANSITIONS[state]} - reachable
        reachable |= fresh
    return after in reachable


def books_balance(credits: Mapping[str, str], tasks: Records, ledger: Sequence[Mapping[str, str]]) -> Finding:
    """Nothing is held, what was spent is the sum over the tasks, and each task's price was held and settled once."""
    wrong: list[str] = []
    spent = sum(int(row.get("cost", 0)) for row in tasks.values())
    oldest = ledger[0] if ledger else {"balance": 0, "amount": 0}
    opening = int(oldest["balance"]) - int(oldest["amount"])  # before what the stream still has
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
    return _make_finding("ledger = tasks, nothing held", summary, wrong)


async def _results_open(tasks: Records, http: httpx2.AsyncClient) -> Finding:
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
    return _make_finding("every result opens", f"{len(ready)} images", problems)


def _durations_are_possible(tasks: Records) -> Finding:
    """By the clock of Redis: work took no less than no time, and no longer than its task lived."""
    wrong, count = [], 0
    for task_id, row in tasks.items():
        if row["status"] == "Ready":
            count += 1
            took, lived = json.loads(row["result"])["duration"], (int(row["finished"]) - int(row["created"])) / 1000
            if not 0 <= took <= lived + _ROUNDED_S:
                wrong.append(f"{task_id}: {took} s of {lived} s")
    return _make_finding("every duration is possible", f"{count} durations", wrong)


def _webhooks_arrived(journal: Journal, tasks: Records) -> Finding:
    """Once or more, always the same body but for the link's signature, and what polling says in the end."""
    expected = {i for i, row in tasks.items() if "webhook_url" in row}
    wrong = [f"{i}: nobody asked for it" for i in journal.calls if i not in expected]
    for task_id in expected & journal.accepted.keys():
        record = journal.accepted[task_id]
        if task_id not in journal.delivered:
            wrong.append(f"{task_id}: never delivered ({record.hook})")
        bodies = [_plain(body) for body in journal.calls[task_id]]
        if any(body != bodies[0] for body in bodies):
            wrong.append(f"{task_id}: {len(bodies)} different bodies")
        polls = [poll for poll in record.polls if poll["status"] in TERMINAL]
        if bodies and polls and _plain(polls[-1]) != bodies[0]:
            wrong.append(f"{task_id}: polling answers something else")
    calls = sum(map(len, journal.calls.values()))
    summary = f"{len(expected)} webhooks in {calls} calls, {len(expected - journal.delivered)} missing"
    return _make_finding("every webhook arrived, with one body", summary, wrong)


async def _no_leftovers(store: Redis, tasks: Collection[str]) -> Finding:
    """No lease, no queue entry, no claim, and no key that nobody knows."""
    keys = [key async for key in store.scan_iter("gen:*", count=1000)]
    strange = [key for key in keys if not _PERMANENT_KEYS.match(key)]
    owned = [key for key in keys if key.startswith(("gen:delivery:", "gen:attempts:"))]
    strange += [key for key in owned if key.rpartition(":")[2] not in tasks]
    return _make_finding("no lease or entry is left over", f"{len(keys)} keys", strange)


def _no_orphaned_objects(objects: Path, tasks: Collection[str]) -> Finding:
    files = [path.relative_to(objects) for path in objects.rglob("*") if path.is_file()]
    orphans = [str(path) for path in files if len(path.parts) < 2 or path.parts[1] not in tasks]
    return _make_finding("every object belongs to a task", f"{len(files)} objects", orphans)


async def _on_demand_queue_scales(tasks: Records, stage: NodesStage) -> Finding:
    """The queue that has no replicas while there is nothing to do did its tasks, and has none again."""
    ready = [row["status"] == "Ready" for row in tasks.values() if row["queue"] == ON_DEMAND]
    give_up = time.monotonic() + _GONE_WITHIN_S
    name = f"ServeReplica:gen:{ON_DEMAND}"
    while (replicas := await asyncio.to_thread(stage.service.processes, name)) and time.monotonic() < give_up:
        await asyncio.sleep(0.5)
    wrong = [f"{len(replicas)} replicas are left"] if replicas else []
    wrong += ["none of its tasks was done"] if ready and not any(ready) else []
    return _make_finding("a queue comes from zero and goes back", f"{sum(ready)} of {len(ready)} tasks done", wrong)


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without the part of the link that is signed anew each time."""
    result = body["result"]
    return {**body, "result": result and {**result, "sample": result["sample"].partition("?")[0]}}


async def _hash(store: Redis, key: str) -> dict[str, str]:
    return await cast(Awaitable[dict[str, str]], store.hgetall(key))
