"""One tenant against limits and others: races for the last place, and administrators who set extreme numbers."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any, Final

from attack import verdict
from attack.attacks import Attack, Play
from attack.corpus import values
from attack.mutations import JSON
from attack.stage import OPERATOR, Stage, Tenant
from attack.wire import Answer, Request

_AT_ONCE: Final = 40
_FITS: Final = 7
_PATH: Final = "/v1/gen-3-image-klein"
_BODY: Final = {"prompt": "x", "width": 64, "height": 64}
_WAYS_TO_SAY_NO: Final = frozenset({402, 403, 404, 409, 422, 429})
_FIELDS: Final = ("weight", "max_active", "limit_day", "limit_week", "limit_month")


def attacks(repository: Path, seed: int, count: int) -> Sequence[Attack]:
    """Races first, over and over; extremes last: where they do harm, all that follows would suffer."""
    races: list[Attack] = [
        Play(f"{name} #{number}", act, _AT_ONCE)
        for number, (name, act) in enumerate(islice(cycle(_RACES), max(len(_RACES), count // 2 // _AT_ONCE)))
    ]
    extremes = list(_extremes())
    room = max(1, count // 2)
    return races + (extremes if len(extremes) <= room else Random(seed).sample(extremes, room))


async def _at_once(stage: Stage, key: str, headers: tuple[tuple[str, str], ...] = ()) -> list[Answer]:
    request = Request("POST", _PATH, json.dumps(_BODY).encode(), (*JSON, *headers))
    return await asyncio.gather(*(stage.send(request, key) for _ in range(_AT_ONCE)))


async def _race(stage: Stage, tenant: Tenant, refused: int, fits: int) -> Sequence[str]:
    """Exactly as many submissions are accepted as fit; the others are refused, and nothing of them is left."""
    key = tenant.keys["developer"]
    answers = await _at_once(stage, key)
    statuses = Counter(answer.status for answer in answers)
    wanted = Counter({200: fits, refused: _AT_ONCE - fits})
    wrong = [] if statuses == wanted else [f"{dict(statuses)} in place of {dict(wanted)}"]
    for answer in answers:
        if answer.status == 200:
            await stage.cancel(json.loads(answer.body)["id"], key)
    balance = await stage.made("GET", f"/v1/admin/credits?organization={tenant.organization}", None)
    if balance["credits"] < 0 or abs(balance["granted"] - sum(balance[k] for k in ("credits", "held", "spent"))) > 1e-6:
        wrong.append(f"books that don't agree: {balance}")
    return wrong


async def _active(stage: Stage) -> Sequence[str]:
    tenant = await stage.tenant()
    await stage.made("PATCH", f"/v1/admin/projects/{tenant.project}", {"max_active": _FITS})
    return await _race(stage, tenant, 429, _FITS)


async def _price(stage: Stage, tenant: Tenant) -> float:
    priced = await stage.made("POST", "/v1/pricing", {"path": _PATH, "body": _BODY}, key=tenant.keys["developer"])
    return priced["cost"]


async def _spending(stage: Stage) -> Sequence[str]:
    tenant = await stage.tenant()
    limit = _FITS * await _price(stage, tenant)
    await stage.made("PATCH", f"/v1/admin/projects/{tenant.project}", {"limit_day": limit})
    return await _race(stage, tenant, 402, _FITS)


async def _balance(stage: Stage) -> Sequence[str]:
    tenant = await stage.tenant(credits=_FITS * await _price(stage, stage.attacker))
    return await _race(stage, tenant, 402, _FITS)


async def _idempotency(stage: Stage) -> Sequence[str]:
    key = stage.key()
    mark = (("Idempotency-Key", uuid.uuid4().hex),)
    answers = [*await _at_once(stage, key, mark), *await _at_once(stage, key, mark)]
    ids = {json.loads(answer.body)["id"] for answer in answers if answer.status == 200}
    others = {answer.status for answer in answers} - {200, 409}
    for task_id in ids:
        await stage.cancel(task_id, key)
    wrong = [] if len(ids) == 1 else [f"{len(ids)} tasks of one idempotency key"]
    other = Request("POST", _PATH, json.dumps({**_BODY, "prompt": "y"}).encode(), (*JSON, *mark))
    if (status := (await stage.send(other, key)).status) != 422:
        wrong.append(f"HTTP {status} for another body under the same key")
    return wrong + [f"HTTP {status}" for status in others]


async def _cancelling(stage: Stage) -> Sequence[str]:
    """A task is paid back once, however often it is cancelled."""
    tenant = await stage.tenant(credits=100)
    key = tenant.keys["developer"]
    task = await stage.made("POST", _PATH, _BODY, key=key)
    answers = await asyncio.gather(*(stage.cancel(task["id"], key) for _ in range(_AT_ONCE)))
    left = (await stage.made("GET", "/v1/credits", None, key=key))["credits"]
    wrong = [f"HTTP {status}" for status in {answer.status for answer in answers} - {200, 409}]
    # It may have been done before the first call came.
    fair = {100, 100 - task["cost"]}
    return wrong if left in fair else [*wrong, f"{left} credits left of 100"]


async def _granting(stage: Stage) -> Sequence[str]:
    tenant = await stage.tenant(credits=1)
    grant = Request(
        "POST",
        f"/v1/admin/credits/grants?organization={tenant.organization}",
        b'{"id": "once", "credits": 10}',
        JSON,
    )
    answers = await asyncio.gather(*(stage.send(grant, stage.operator) for _ in range(_AT_ONCE)))
    left = (await stage.made("GET", "/v1/credits", None, key=tenant.keys["viewer"]))["credits"]
    wrong = [f"HTTP {status}" for status in {answer.status for answer in answers} - {200, 409}]
    return wrong if left == 11 else [*wrong, f"{left} credits, 11 were granted"]


_RACES: Final[tuple[tuple[str, Callable[[Stage], Awaitable[Sequence[str]]]], ...]] = (
    ("the last active task", _active),
    ("the last of a spending limit", _spending),
    ("the last credits", _balance),
    ("one idempotency key", _idempotency),
    ("cancelling one task", _cancelling),
    ("one grant", _granting),
)


def _extremes() -> Iterator[Play]:
    for role in ("administrator", "billing_manager", OPERATOR):
        for name in _FIELDS:
            for number in values().numbers:
                yield Play(f"{role} sets {name} {number}", _setting(role, name, number))
    for number in values().numbers:
        grant = f'{{"id": "{uuid.uuid5(uuid.NAMESPACE_OID, number)}", "credits": {number}}}'
        yield Play(f"operator grants {number}", _sending("/v1/admin/credits/grants?organization={organization}", grant))
        expires = f'{{"name": "x", "project": "{{project}}", "expires": {number}}}'
        yield Play(f"a key that expires at {number}", _sending("/v1/admin/keys", expires))


def _setting(role: str, name: str, number: str) -> Callable[[Stage], Awaitable[Sequence[str]]]:
    """Afterwards the project itself works or is refused, and others work as before."""

    async def act(stage: Stage) -> Sequence[str]:
        request = Request("PATCH", f"/v1/admin/projects/{stage.spare}", f'{{"{name}": {number}}}'.encode(), JSON)
        answer = await stage.send(request, stage.key(role))
        wrong = verdict.wrong(request, answer, stage.secrets)
        if answer.status == 200 and role != OPERATOR and name in ("weight", "max_active"):
            wrong.append(f"{name} {number[:20]} is set, which is the operator's to say")
        wrong += await _works(stage, stage.working_keys[stage.spare], _WAYS_TO_SAY_NO)
        wrong += [f"another's: {each}" for each in await _works(stage, stage.victim.keys["developer"])]
        await stage.made("PATCH", f"/v1/admin/projects/{stage.spare}", dict.fromkeys(_FIELDS))
        return wrong

    return act


async def _works(stage: Stage, key: str, refusals: frozenset[int] = frozenset()) -> list[str]:
    """Two tasks are made, looked at and cancelled, unless a limit refuses them."""
    wrong = []
    for _ in range(2):
        submitted = await stage.ask("POST", _PATH, _BODY, key=key)
        if submitted.status != 200:
            if submitted.status not in refusals:
                wrong.append(f"HTTP {submitted.status} for a submission: {submitted.text[:100]}")
            continue
        task_id = json.loads(submitted.body)["id"]
        polled = await stage.ask("GET", f"/v1/get_result?id={task_id}", key="")
        cancelled = await stage.cancel(task_id, key)
        wrong += [f"HTTP {polled.status} for a poll"] if polled.status != 200 else []
        wrong += [f"HTTP {cancelled.status} for cancelling"] if cancelled.status not in (200, 409) else []
    return wrong


def _sending(target: str, body: str) -> Callable[[Stage], Awaitable[Sequence[str]]]:
    async def act(stage: Stage) -> Sequence[str]:
        names: dict[str, Any] = {"organization": stage.attacker.organization, "project": stage.spare}
        request = Request("POST", target.format(**names), body.replace("{project}", stage.spare).encode(), JSON)
        return verdict.wrong(request, await stage.send(request, stage.operator), stage.secrets)

    return act
