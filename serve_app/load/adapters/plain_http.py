"""Any other server: what is sent, and where in the answer things are, stand in the mix under `http`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

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
from serve_app.load.clock import Clock
from serve_app.load.mix import Poll
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.target import Target

_NAME: Final = re.compile(r"\{(prompt|width|height|steps|seconds|seed|endpoint|key)\}")


class PlainHttp:
    def __init__(self, target: Target) -> None:
        """Raises ValueError without a template."""
        if target.template is None:
            raise ValueError("http: the plain HTTP adapter needs this section of the mix, and it is not there")
        self._target = target
        self._template = target.template

    def prepare(self, request: Request) -> None:
        if request.shape.references:
            raise ValueError(f"{request.endpoint}: references can't be sent by the plain HTTP adapter")
        template = self._template
        _filled([template.path, template.headers, template.body], self._values(request))

    async def carry(self, http: httpx2.AsyncClient, request: Request, outcome: Outcome, clock: Clock) -> None:
        template, limit = self._template, self._target.limit
        values = self._values(request)
        headers = _filled(template.headers, values)
        data = None
        if template.body is not None:
            data = json.dumps(_filled(template.body, values) | dict(request.body)).encode()
            headers = {"content-type": "application/json", **headers}
        path = _filled(template.path, {name: str(value) for name, value in values.items()})
        sent = outcome.sent = clock.now()
        answer = await http.request(template.method, path, content=data, headers=headers, timeout=limit)
        arrived = clock.now()
        check_status(answer, template.good)
        if template.poll is None:
            if template.result is not None and _at(object_of(answer), template.result) in (None, "", [], {}):
                raise unusable(f"nothing at {template.result}")
            outcome.final = arrived
            return
        outcome.acknowledged = arrived
        address = _at(object_of(answer), template.poll.url)
        if not isinstance(address, str) or not address:
            raise unusable(f"no address at {template.poll.url}")
        try:
            url = httpx2.URL(self._target.base_url).join(address)
        except httpx2.InvalidURL:
            raise unusable(f"no address at {template.poll.url}") from None
        shown = headers if same_origin(url, httpx2.URL(self._target.base_url)) else {}
        poll = self._poll(http, url, shown, template.poll)

        async def look() -> bool:
            return await poll(outcome, clock)

        await until_ended(look, outcome, lambda: sent + limit - clock.now(), self._target.poll_every)

    def _poll(
        self, http: httpx2.AsyncClient, url: httpx2.URL, headers: Mapping[str, str], poll: Poll
    ) -> Callable[[Outcome, Clock], Any]:
        """Headers go along to the server's own origin only: they may hold a key."""
        result = self._template.result

        async def look(outcome: Outcome, clock: Clock) -> bool:
            answer = await http.get(url, headers=dict(headers), timeout=self._target.limit)
            try:
                told = answer.json()
            except (ValueError, RecursionError):
                raise PollFailed from None
            status = _at(told, poll.status)
            if not answer.is_success or status is None:
                raise PollFailed
            if status not in (*poll.done, *poll.failed):
                return False
            outcome.final = clock.now()
            if status in poll.failed:
                raise NotServed("failed", str(status))
            if result is not None and _at(told, result) in (None, "", [], {}):
                raise unusable(f"nothing at {result}")
            return True

        return look

    def _values(self, request: Request) -> dict[str, Any]:
        size = request.shape.size
        return {
            "prompt": request.prompt,
            "width": size and size.width,
            "height": size and size.height,
            "steps": request.shape.steps,
            "seconds": request.shape.seconds,
            "seed": request.seed,
            "endpoint": request.endpoint,
            "key": self._target.keys.get(request.tenant),
        }


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    """With every name in braces replaced. Raises ValueError for one that this request has no value for."""
    match part:
        case dict():
            return {name: _filled(each, values) for name, each in part.items()}
        case list():
            return [_filled(each, values) for each in part]
        case str():
            whole = _NAME.fullmatch(part)
            if whole:
                return _value(whole[1], values)
            return _NAME.sub(lambda found: str(_value(found[1], values)), part)
        case _:
            return part


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if values[name] is None:
        raise ValueError(f"http: {{{name}}} stands in the template, and {values['endpoint']} of the mix has none")
    return values[name]


def _at(told: Any, place: str) -> Any:
    """What stands at `data.0.url`; None where there is nothing."""
    for name in place.split("."):
        if isinstance(told, list) and name.isdigit() and int(name) < len(told):
            told = told[int(name)]
        elif isinstance(told, dict):
            told = told.get(name)
        else:
            return None
    return told
