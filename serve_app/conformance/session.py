"""What a check may do at the server: ask, submit, wait for a result, be refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from serve_app.conformance import endpoints
from serve_app.conformance.answers import Json, json_of, problems
from serve_app.conformance.budget import Budget
from serve_app.conformance.endpoints import NO_FINETUNE
from serve_app.conformance.exchange import Exchange
from serve_app.conformance.receiver import Receiver
from serve_app.conformance.verdicts import Broken, Skipped, expect

WAITING: Final = frozenset({"Pending", "Reasoning", "Generating"})
TERMINAL: Final = frozenset({"Ready", "Error", "Request Moderated", "Content Moderated"})
_BUSY_S: Final = 30.0
"""How long a submission is put off by 429."""
_WAIT_S: Final = 5.0
"""How long one poll waits on the server's side."""
_PAUSE_S: Final = 0.05
"""Between two polls."""


@dataclass(slots=True)
class Target:
    """The server that is judged, and what all checks of it share."""

    http: httpx2.AsyncClient
    key: str
    budget: Budget
    receiver: Receiver | None = None
    finetunes: Mapping[str, str] = field(default_factory=dict)
    """Ids of tuned models, by their base endpoint."""
    video: bool = False
    task_s: float = 300.0
    finished: dict[str, Json] = field(default_factory=dict)
    """Tasks that came to their end, by what was submitted: checks that look at results share them."""
    quotes: bool | None = None
    """Whether `POST /v1/pricing` is there and checks a request as its submission would; None: not known yet."""

    @property
    def base_url(self) -> str:
        return str(self.http.base_url).rstrip("/")


class Session:
    """One check's."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.last: Exchange | None = None
        self._started: dict[str, float] = {}
        """Tasks to cancel once the check is through, and what they cost."""

    # Asking

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
    ) -> httpx2.Response:
        """`key` "" sends none; `path` may be a whole URL, and the key then goes to the server's own origin only."""
        key = self.target.key if key is None else key
        own = not path.startswith("http") or path.startswith(self.target.base_url + "/")
        sent = ({"x-key": key} if key and own else {}) | dict(headers or {})
        json = None if content is not None else body
        response = await self.target.http.request(method, path, json=json, headers=sent, params=params, content=content)
        shown = path + (f"?{httpx2.QueryParams(params)}" if params else "")
        self.last = Exchange.of(method, shown, body if content is None else content, response)
        return response

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        return await self.ask("POST", path, body, **options)

    # Submitting

    async def submit(self, endpoint: str, body: Json, *, patiently: bool = True, **options: Any) -> httpx2.Response:
        """The answer to a submission, which may be put off by 429 for a while if `patiently`. Its task is cancelled
        after the check."""
        price = endpoints.price(endpoint)
        self.target.budget.reserve(price)
        send = self._patiently if patiently else self.post
        response = await send(f"/v1/{endpoint}", body, **options)
        if response.status_code == 402:
            raise Skipped("the key's organization has too few credits")
        if response.status_code != 200:
            self.target.budget.correct(price, 0)
            return response
        reply = json_of(response)
        if isinstance(cost := reply.get("cost"), int | float):
            self.target.budget.correct(price, cost)
            price = cost
        task_id = reply.get("id")
        if task_id in self._started:  # the repetition of an earlier one
            self.target.budget.correct(price, 0)
        elif isinstance(task_id, str):
            self._started[task_id] = price
        return response

    async def accepted(self, endpoint: str, body: Json | None = None, **options: Any) -> Json:
        """The answer to the endpoint's least request, changed by `body`, which has to be 200."""
        response = await self.submit(endpoint, minimal(endpoint) | (body or {}), **options)
        _served(endpoint, response)
        expect(response.status_code == 200, "200 and a task submission response")
        return json_of(response)

    async def takes(self, endpoint: str, change: Json, *, gated: bool = False) -> None:
        """Expects that a request passes validation. Where the server tells prices, it is asked for this one's: that
        starts no task. Else it is submitted, and cancelled.

        `gated`: a refusal that tells the approved levels is no fault.
        """
        body = minimal(endpoint) | change
        if await self._tells_prices():
            response = await self._patiently("/v1/pricing", {"path": f"/v1/{endpoint}", "body": body})
        else:
            response = await self.submit(endpoint, body)
        _served(endpoint, response)
        if (
            gated
            and response.status_code == 422
            and any("approved" in (e.get("ctx") or {}) for e in problems(response))
        ):
            return
        if body.get("finetune_id") == NO_FINETUNE:
            expect(
                response.status_code == 400, "400, as the request is valid but for a tuned model that does not exist"
            )
            return
        expect(response.status_code == 200, f"that {_told(change)} is accepted")

    async def refuses(self, endpoint: str, change: Json, field: str, *, without: str = "") -> Json:
        """Expects a 422 that names `field`. Returns the entry."""
        body = {name: value for name, value in (minimal(endpoint) | change).items() if name != without}
        response = await self.submit(endpoint, body)
        _served(endpoint, response)
        told = f"{without} left out" if without else _told(change)
        expect(response.status_code == 422, f"422 for {told}")
        for entry in problems(response):
            if field in entry["loc"]:
                return entry
        raise Broken(f"that detail[].loc names {field}")

    async def _patiently(self, path: str, body: Json, **options: Any) -> httpx2.Response:
        """The answer to a request that may be put off by 429 for a while."""
        give_up = time.monotonic() + _BUSY_S
        while True:
            response = await self.post(path, body, **options)
            if response.status_code != 429 or time.monotonic() > give_up:
                return response
            await asyncio.sleep(min(float(response.headers.get("retry-after", 1)), 5.0))

    async def _tells_prices(self) -> bool:
        target = self.target
        if target.quotes is None:
            klein = endpoints.KLEIN
            body = dict(minimal(klein))
            good = await self.post("/v1/pricing", {"path": f"/v1/{klein}", "body": body})
            bad = await self.post("/v1/pricing", {"path": f"/v1/{klein}", "body": body | {"steps": 0}})
            target.quotes = (good.status_code, bad.status_code) == (200, 422)
        return target.quotes

    # Results

    async def poll(self, task_id: str, **options: Any) -> httpx2.Response:
        params = {"id": task_id} | options.pop("params", {})
        return await self.get("/v1/get_result", key="", params=params, **options)

    def keep(self, task_id: str) -> None:
        """Has the task go on to its end, whatever comes of the check."""
        self._started.pop(task_id, None)

    async def answers(self, task_id: str, *, wait: float = 0, **options: Any) -> AsyncIterator[httpx2.Response]:
        """What polling answers, again and again, to the task's end. Each poll waits for it, `wait` seconds at most.

        Raises Broken when it takes too long, or has a status that there is not.
        """
        self.keep(task_id)
        give_up = time.monotonic() + self.target.task_s
        while True:
            response = await self.poll(task_id, params={"wait": wait} if wait else {}, **options)
            yield response
            status = json_of(response).get("status")
            if status not in WAITING:
                expect(status in TERMINAL, "one of the statuses of the interface")
                return
            expect(time.monotonic() < give_up, f"that the task ends within {self.target.task_s:g} s")
            await asyncio.sleep(_PAUSE_S)

    async def end_of(self, task_id: str) -> Json:
        """The task once it has ended. Raises Broken as `answers` does."""
        task: Json = {}
        async for response in self.answers(task_id, wait=min(_WAIT_S, self.target.task_s)):
            task = json_of(response)
        return task

    async def finished(self, endpoint: str, body: Json | None = None) -> Json:
        """A task of this request that is `Ready`; the same one for every check that asks."""
        name = f"{endpoint} {sorted((body or {}).items())}"
        if name not in self.target.finished:
            reply = await self.accepted(endpoint, body)
            task = await self.end_of(reply["id"])
            expect(task["status"] == "Ready", "that the task comes to be Ready")
            self.target.finished[name] = task
        return self.target.finished[name]

    async def picture(self, task: Json) -> bytes:
        """The file of a task's result."""
        response = await self.get(task["result"]["sample"], key="")
        expect(response.status_code == 200, "that the link opens the file")
        return response.content

    def hook(self, *answers: int) -> str:
        """A URL that receives webhooks and answers the first ones so. For checks that need a receiver."""
        assert self.target.receiver is not None
        return self.target.receiver.hook(*answers)

    async def close(self) -> None:
        """Cancels what was started and nobody waits for; a server that can't cancel lets it run."""
        for task_id, price in self._started.items():
            response = await self.target.http.delete(f"/v1/tasks/{task_id}", headers={"x-key": self.target.key})
            if response.status_code == 200:
                self.target.budget.correct(price, 0)


def minimal(endpoint: str) -> Json:
    """The least body of an endpoint; of a tuned one that is not described by itself, its base's with a made-up id."""
    if endpoint in endpoints.ENDPOINTS:
        return dict(endpoints.ENDPOINTS[endpoint].minimal)
    return dict(endpoints.ENDPOINTS[endpoint.removesuffix("-finetuned")].minimal) | {"finetune_id": NO_FINETUNE}


def same_origin(one: str, other: str) -> bool:
    return urlsplit(one)[:2] == urlsplit(other)[:2]


def _served(endpoint: str, response: httpx2.Response) -> None:
    if endpoint.endswith("-finetuned") and response.status_code == 404:
        raise Skipped(f"{endpoint} is not served at this address")


def _told(change: Json) -> str:
    """A change in a few words."""

    def short(value: Any) -> str:
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:40]}…"

    return ", ".join(f"{name} {short(value)}" for name, value in change.items()) or "the least request"
