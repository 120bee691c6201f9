"""Servers of this dialect: a submission is answered with an id and an address to poll."""

from __future__ import annotations

import json
from typing import Final

import httpx2

from serve_app.load.adapters.answers import (
    NotServed,
    PollFailed,
    check_status,
    object_of,
    same_origin,
    until_ended,
    unusable,
)
from serve_app.load.adapters.dialect_bodies import body_of, path_of
from serve_app.load.clock import Clock
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.target import Target

_WAITING: Final = frozenset({"Pending", "Reasoning", "Generating", "Task not found"})
"""A task that is not there yet may be there on the next look; if it never is, it is lost."""
_FAILED: Final = frozenset({"Error", "Request Moderated", "Content Moderated"})
_PATIENCE_S: Final = 30.0


class Dialect:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._origin = httpx2.URL(target.base_url)
        self._timeout = httpx2.Timeout(target.wait + _PATIENCE_S)

    def prepare(self, request: Request) -> None:
        body_of(request, self._target.finetune)

    async def carry(self, http: httpx2.AsyncClient, request: Request, outcome: Outcome, clock: Clock) -> None:
        target = self._target
        headers = {"content-type": "application/json", **self._key(request.tenant)}
        data = json.dumps(body_of(request, target.finetune)).encode()
        outcome.sent = clock.now()
        answer = await http.post(path_of(request, target.finetune), content=data, headers=headers, timeout=target.limit)
        check_status(answer)
        told = object_of(answer)
        address = told.get("polling_url")
        if not isinstance(told.get("id"), str) or not isinstance(address, str):
            raise unusable("a submission without id and polling_url")
        outcome.acknowledged = clock.now()
        try:
            url = httpx2.URL(target.base_url).join(address)
        except httpx2.InvalidURL:
            raise unusable("polling_url is no address") from None
        if target.wait:
            url = url.copy_merge_params({"wait": f"{target.wait:g}"})
        # A key is shown to its own server only.
        shown = self._key(request.tenant) if same_origin(url, self._origin) else {}

        async def poll() -> bool:
            return self._noted(await http.get(url, headers=shown, timeout=self._timeout), outcome, clock)

        sent = outcome.sent
        await until_ended(
            poll, outcome, lambda: sent + target.limit - clock.now(), target.poll_every, at_once=target.wait > 0
        )

    def _noted(self, answer: httpx2.Response, outcome: Outcome, clock: Clock) -> bool:
        """Whether the task has ended. Raises NotServed where it ended without a result."""
        try:
            task = answer.json()
            status = task["status"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise PollFailed from None
        if status in _WAITING:
            if answer.status_code == 404:
                raise PollFailed
            return False
        if status not in _FAILED and status != "Ready":
            raise unusable(f"status {str(status)[:40]!r}")
        outcome.final = clock.now()
        result = task.get("result")
        if isinstance(result, dict):
            outcome.started = clock.of_epoch(result.get("start_time"))
            outcome.ended = clock.of_epoch(result.get("end_time"))
        if status != "Ready":
            raise NotServed("failed", status)
        if not result:
            raise unusable("Ready without a result")
        return True

    def _key(self, tenant: str) -> dict[str, str]:
        key = self._target.keys.get(tenant)
        return {"x-key": key} if key else {}
