"""The promises, checked against what was seen from outside and what is left inside."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final, cast

import httpx2
from PIL import Image
from redis.asyncio import Redis
from support.local_service import LocalService

from chaos.clients import TERMINAL
from chaos.evidence import Evidence
from chaos.harm import ended_wrongly
from chaos.journal import Journal
from serve_app.tasks.task import TRANSITIONS, Status

_SHOWN: Final = 5
"""Examples of what is wrong."""
_ROUNDED_S: Final = 0.01
_KEPT_KEYS: Final = re.compile(
    r"gen:(task:|tasks:|stats:|clock:|fair:|idempotency:|retention$|timings:|failed:|pace:|work:|setup:|"
    r"device|dispatcher$|tally:|made$|paid$|rate:|call:|replicated$|secret:|deliver|attempts:|undelivered$|"
    r"credits:|ledger:|grants:|spent:|usage:|key|project|organization|member|audit|receiver:)"
)
"""What may be there when nothing is on its way."""


@dataclass(frozen=True, slots=True)
class Finding:
    promise: str
    measured: str
    wrong: tuple[str, ...] = ()
    """Examples, when it was not kept."""

    @property
    def kept(self) -> bool:
        return not self.wrong


async def judge(
    journal: Journal, evidence: Evidence, store: Redis, http: httpx2.AsyncClient, objects: Path
) -> list[Finding]:
    tasks = evidence.tasks
    return [
        await _accepted_is_kept(journal, store, tasks),
        _refusals_are_clear(journal),
        _statuses_are_legal(journal, tasks),
        await _books_balance(store, evidence),
        await _results_open(tasks, http),
        _durations_are_possible(tasks),
        _webhooks_arrived(journal, tasks),
        _dead_receiver_delays_nobody(journal),
        _signatures_are_right(journal),
        await _nothing_is_left(store, tasks),
        _no_orphaned_objects(objects, tasks),
    ]


def no_processes(service: LocalService) -> Finding:
    left = [f"{process.pid}: {' '.join(process.cmdline())[:100]}" for process in service.processes()]
    return Finding("no process is left", f"{len(left)} processes", tuple(left[:_SHOWN]))


async def _accepted_is_kept(journal: Journal, store: Redis, tasks: Mapping[str, Mapping[str, str]]) -> Finding:
    """Every task a client was promised ended, and none is there twice or unasked for."""
    lost = [f"{i}: lost" for i in journal.accepted if i not in tasks]
    open_ = [f"{i}: {row['status']}" for i, row in tasks.items() if row["status"] not in TERMINAL]
    counted: Counter[str] = Counter()
    async for key in store.scan_iter("gen:stats:*", count=10_000):
        counted.update({k: int(v) for k, v in (await _hash(store, key)).items()})
    ended = sum(counted[name] for name in TERMINAL)
    doubled = [] if counted["accepted"] == ended == len(tasks) else [f"accepted {counted['accepted']}, ended {ended}"]
    failed = [
        f"{i}: {row['status']}, though nobody cancelled it: {row.get('details')}"
        for i, row in tasks.items()
        if ended_wrongly(row, journal.accepted.get(i))
    ]
    # A client whose answer was lost asked again with its key, so each knows its task.
    unasked = [f"{i}: nobody was told" for i in tasks if i not in journal.accepted]
    wrong = [*lost, *open_, *doubled, *failed, *unasked]
    statuses = Counter(row["status"] for row in tasks.values())
    told = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    return Finding(
        "accepted = ended, once each", f"{len(journal.accepted)} accepted, {len(lost)} lost: {told}", _some(wrong)
    )


def _refusals_are_clear(journal: Journal) -> Finding:
    """A request that is in order is only ever put off, and told for how long."""
    counted = Counter(refusal.status for refusal in journal.refused)
    wrong = [
        f"HTTP {refusal.status}: {refusal.text[:200]}"
        for refusal in journal.refused
        if refusal.status < 500 and not (refusal.status == 429 and refusal.retry_after)
    ]
    return Finding("refused only for now", f"{sum(counted.values())} refusals {dict(counted) or ''}", _some(wrong))


def _statuses_are_legal(journal: Journal, tasks: Mapping[str, Mapping[str, str]]) -> Finding:
    """No client saw a step that there is none of, nor anything after the end but the end; and progress never fell."""
    wrong, pairs = [], 0
    for seen in journal.accepted.values():
        statuses = seen.statuses
        if seen.id in tasks and statuses and statuses[-1] in TERMINAL:
            statuses = [*statuses, tasks[seen.id]["status"]]
        for before, after in itertools.pairwise(statuses):
            pairs += 1
            if Status(after) not in _REACHABLE[Status(before)]:
                wrong.append(f"{seen.id}: {before}, then {after}")
    return Finding("no illegal change of status", f"{journal.polls} polls, {pairs} changes looked at", _some(wrong))


async def _books_balance(store: Redis, evidence: Evidence) -> Finding:
    """Nothing is held, and what was spent is the sum over the tasks, in the balance as in the ledger."""
    wrong: list[str] = []
    balances = await _hash(store, "gen:credits:default")
    spent = sum(int(row["cost"]) for row in evidence.tasks.values() if "cost" in row)
    oldest = evidence.ledger[0] if evidence.ledger else {"balance": 0, "amount": 0}
    opening = int(oldest["balance"]) - int(oldest["amount"])  # before what the stream still has
    moved = opening + sum(int(entry["amount"]) for entry in evidence.ledger)
    held = int(balances.get("held", 0))
    if held:
        wrong.append(f"{held} still held")
    if int(balances["spent"]) != spent:
        wrong.append(f"spent {balances['spent']}, tasks cost {spent}")
    if int(balances["balance"]) != moved or int(balances["granted"]) - spent != moved:
        wrong.append(f"balance {balances['balance']}, ledger {moved}, granted {balances['granted']} less {spent}")
    off = int(balances["balance"]) - moved
    return Finding(
        "ledger = tasks, nothing held", f"off by {off}, held {held}, {len(evidence.ledger)} entries", _some(wrong)
    )


async def _results_open(tasks: Mapping[str, Mapping[str, str]], http: httpx2.AsyncClient) -> Finding:
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

    problems = [found for found in await asyncio.gather(*map(problem, ready)) if found]
    return Finding("every result opens", f"{len(ready)} pictures", _some(problems))


def _durations_are_possible(tasks: Mapping[str, Mapping[str, str]]) -> Finding:
    """By the clock of Redis: work took no less than no time, and no longer than its task lived."""
    wrong, seen = [], 0
    for task_id, row in tasks.items():
        if row["status"] == "Ready":
            seen += 1
            took, lived = json.loads(row["result"])["duration"], (int(row["finished"]) - int(row["created"])) / 1000
            if not 0 <= took <= lived + _ROUNDED_S:
                wrong.append(f"{task_id}: {took} s of {lived} s")
    return Finding("every duration is possible", f"{seen} durations", _some(wrong))


def _webhooks_arrived(journal: Journal, tasks: Mapping[str, Mapping[str, str]]) -> Finding:
    """Once or more, always the same body but for the link's signature, and what polling says in the end."""
    wrong, calls = [], 0
    asked = {i for i, row in tasks.items() if "webhook_url" in row}
    for task_id in asked:
        if task_id not in journal.delivered:
            wrong.append(f"{task_id}: never delivered ({journal.accepted[task_id].hook})")
        bodies = [_plain(body) for _, body in journal.calls[task_id]]
        calls += len(bodies)
        if any(body != bodies[0] for body in bodies):
            wrong.append(f"{task_id}: {len(bodies)} different bodies")
        polls = [poll for poll in journal.accepted[task_id].polls if poll["status"] in TERMINAL]
        if bodies and polls and _plain(polls[-1]) != bodies[0]:
            wrong.append(f"{task_id}: polling answers something else")
    wrong += [f"{i}: nobody asked for it" for i in journal.calls if i not in asked]
    told = f"{len(asked)} webhooks in {calls} calls, {len(asked - journal.delivered)} missing"
    return Finding("every webhook arrived, with one body", told, _some(wrong))


def _dead_receiver_delays_nobody(journal: Journal) -> Finding:
    told = f"{journal.backlog} webhooks waited for it, {len(journal.delayed)} of others"
    return Finding("a dead receiver delays nobody", told, _some(journal.delayed))


def _signatures_are_right(journal: Journal) -> Finding:
    calls = sum(map(len, journal.calls.values()))
    return Finding("every call is signed", f"{calls} calls", _some(journal.forged))


async def _nothing_is_left(store: Redis, tasks: Mapping[str, Mapping[str, str]]) -> Finding:
    """No lease, no queue entry, no claim, and no key that nobody knows."""
    keys = [key async for key in store.scan_iter("gen:*", count=1000)]
    strange = [key for key in keys if not _KEPT_KEYS.match(key)]
    owned = [key for key in keys if key.startswith(("gen:delivery:", "gen:attempts:"))]
    strange += [key for key in owned if key.rpartition(":")[2] not in tasks]
    return Finding("no lease or entry is left over", f"{len(keys)} keys", _some(strange))


def _no_orphaned_objects(objects: Path, tasks: Mapping[str, Mapping[str, str]]) -> Finding:
    files = [path.relative_to(objects) for path in objects.rglob("*") if path.is_file()]
    orphans = [str(path) for path in files if len(path.parts) < 2 or path.parts[1] not in tasks]
    return Finding("every object belongs to a task", f"{len(files)} objects", _some(orphans))


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without the part of the link that is signed anew each time."""
    result = body["result"]
    return {**body, "result": result and {**result, "sample": result["sample"].partition("?")[0]}}


async def _hash(store: Redis, key: str) -> dict[str, str]:
    return await cast(Awaitable[dict[str, str]], store.hgetall(key))


def _some(wrong: list[str]) -> tuple[str, ...]:
    more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    return (*wrong[:_SHOWN], *more)


def _reachable(status: Status, step: Callable[[Status], frozenset[Status]]) -> frozenset[Status]:
    found, fresh = {status}, {status}
    while fresh:
        fresh = {following for known in fresh for following in step(known)} - found
        found |= fresh
    return frozenset(found)


_REACHABLE: Final = {status: _reachable(status, lambda s: TRANSITIONS[s]) for status in TRANSITIONS}
"""From one poll to the next, steps in between may go unseen."""
