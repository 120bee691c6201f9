"""Adapters to servers: this project's interface, and OpenAI's image API."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import httpx2

from gen_serve_bench.bodies import VARIANTS, request_body, request_path
from gen_serve_bench.outcomes import End, Outcome
from gen_serve_bench.workload import LoadRequest

AdapterName: TypeAlias = Literal["gen", "openai"]
ADAPTERS: Final[tuple[str, ...]] = get_args(AdapterName)

_AFTER_ERROR_S: Final = 0.2
_ANSWER_S: Final = 30.0
_REFUSALS: Final = frozenset({503, *range(400, 500)})
_WAITING: Final = frozenset({"Pending", "Reasoning", "Generating", "Task not found"})
"""Statuses of unfinished tasks. A task that is not found yet may appear by the next poll, else it is lost."""
_FAILED: Final = frozenset({"Error", "Request Moderated", "Content Moderated"})
_IMAGES: Final = "/v1/images/generations"
_MAGIC: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF")


@dataclass(frozen=True, slots=True)
class Target:
    """Server under load. Times are in seconds."""

    base_url: str
    adapter: AdapterName = "gen"
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """API keys by tenant. Tenants without one send no key."""
    limit: float = 300.0
    """Seconds after its submission at which an unfinished task counts as lost."""
    poll_every: float = 0.1
    wait: float = 0.0
    """Seconds that a poll may wait at the server (`?wait=`); 0 to leave it out."""
    finetune: str | None = None
    """Id of the tuned model for a trace's requests that used one."""


class Clock:
    """Seconds after the start of a run, equal in all of its processes."""

    def __init__(self, epoch: float) -> None:
        """`epoch`: the start in epoch seconds, which may lie in the future."""
        self.epoch = epoch
        # Monotonic, so that changes of the machine's clock have no effect.
        self._zero = time.monotonic() + (epoch - time.time())

    def now(self) -> float:
        return time.monotonic() - self._zero

    def from_epoch(self, value: object) -> float | None:
        """Converts a server's epoch seconds; None for any other value."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) - self.epoch


class NotServed(Exception):
    """A request ended without a result."""

    def __init__(self, end: End, reason: str) -> None:
        super().__init__(reason)
        self.end: End = end
        self.reason = reason


class PollFailed(Exception):
    """The answer of a poll says nothing about the task."""


def prepare_adapter(target: Target, requests: Mapping[str, LoadRequest]) -> Dialect | OpenAIImages:
    """Makes the adapter and caches expensive bodies. Raises ValueError if it can't send one of the requests."""
    adapter = OpenAIImages(target) if target.adapter == "openai" else Dialect(target)
    for request in requests.values():
        for seed in range(VARIANTS if request.shape.references else 1):
            adapter.prepare(replace(request, seed=seed))
    return adapter


class Dialect:
    """This project's interface: a submission returns an id and a URL to poll."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._origin = httpx2.URL(target.base_url)
        self._timeout = httpx2.Timeout(target.wait + _ANSWER_S)

    def prepare(self, request: LoadRequest) -> None:
        """Fills the cache of images. Raises ValueError if the request can't be sent."""
        request_body(request, self._target.finetune)

    async def carry(self, http: httpx2.AsyncClient, request: LoadRequest, outcome: Outcome, clock: Clock) -> None:
        """Sends a request, waits for its end and records the times.

        Raises NotServed for an end without a result, and httpx2.HTTPError.
        """
        target = self._target
        key = {"x-key": target.keys[request.tenant]} if target.keys.get(request.tenant) else {}
        data = json.dumps(request_body(request, target.finetune)).encode()
        headers = {"content-type": "application/json", **key}
        started = outcome.sent = clock.now()
        answer = await http.post(
            request_path(request, target.finetune), content=data, headers=headers, timeout=target.limit
        )
        body = _object(answer)
        task_id, address = body.get("id"), body.get("polling_url")
        if not isinstance(task_id, str) or not isinstance(address, str):
            raise _unusable("a submission without id and polling_url")
        outcome.acknowledged, outcome.task_id = clock.now(), task_id
        try:
            url = self._origin.join(address)
        except httpx2.InvalidURL:
            raise _unusable("polling_url is no URL") from None
        if target.wait:
            url = url.copy_merge_params({"wait": f"{target.wait:g}"})
        # The key goes to its own server only.
        same_origin = (url.scheme, url.host, url.port) == (self._origin.scheme, self._origin.host, self._origin.port)

        async def poll() -> bool:
            return self._record_poll(
                await http.get(url, headers=key if same_origin else {}, timeout=self._timeout), outcome, clock
            )

        await poll_until_end(
            poll, outcome, lambda: started + target.limit - clock.now(), target.poll_every, target.wait > 0
        )

    def _record_poll(self, answer: httpx2.Response, outcome: Outcome, clock: Clock) -> bool:
        """Records a poll. Returns whether the task has ended; raises NotServed if it has no result."""
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
            raise _unusable(f"status {str(status)[:40]!r}")
        outcome.final = clock.now()
        result = task.get("result")
        if isinstance(result, dict):
            outcome.started = clock.from_epoch(result.get("start_time"))
            outcome.ended = clock.from_epoch(result.get("end_time"))
        if status != "Ready":
            raise NotServed("failed", status)
        if not result:
            raise _unusable("Ready without a result")
        return True


async def poll_until_end(
    poll: Callable[[], Awaitable[bool]],
    outcome: Outcome,
    remaining_s: Callable[[], float],
    every: float,
    immediately: bool = False,
) -> None:
    """Polls until the task ends, at most once every `every` seconds. Raises NotServed with `lost` when time is up.

    The first poll comes after `every` seconds unless `immediately`. Failed polls are counted and repeated, as they say
    nothing about the task.
    """
    pause = 0.0 if immediately else every
    while (remaining := remaining_s()) > 0:
        await asyncio.sleep(min(pause, remaining))
        outcome.polls += 1
        remaining_before = remaining_s()
        try:
            if await poll():
                return
        except (httpx2.HTTPError, PollFailed):
            outcome.poll_errors += 1
            await asyncio.sleep(_AFTER_ERROR_S)
        pause = max(0.0, every - (remaining_before - remaining_s()))
    raise NotServed("lost", "never seen to end")


class OpenAIImages:
    """Servers with OpenAI's image API: the answer to a request is the image."""

    def __init__(self, target: Target) -> None:
        self._target = target
        # Base URLs of these servers often include the version.
        self._path = _IMAGES.removeprefix("/v1") if target.base_url.rstrip("/").endswith("/v1") else _IMAGES

    def prepare(self, request: LoadRequest) -> None:
        if request.shape.references:
            raise ValueError(f"{request.endpoint}: references can't be sent to {_IMAGES}")
        if request.shape.seconds is not None:
            raise ValueError(f"{request.endpoint}: {_IMAGES} makes no videos (seconds)")

    async def carry(self, http: httpx2.AsyncClient, request: LoadRequest, outcome: Outcome, clock: Clock) -> None:
        shape, key = request.shape, self._target.keys.get(request.tenant)
        body: dict[str, Any] = {"model": request.endpoint, "prompt": request.prompt, "n": 1, "seed": request.seed}
        if shape.size:
            body["size"] = str(shape.size)
        if shape.steps is not None:
            body["num_inference_steps"] = shape.steps
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        data = json.dumps(body | dict(request.body)).encode()
        outcome.sent = clock.now()
        answer = await http.post(self._path, content=data, headers=headers, timeout=self._target.limit)
        now = clock.now()
        match _object(answer).get("data"):
            case [{"b64_json": str(image)}] if not _is_image(image):
                raise _unusable("b64_json is no image")
            case [{"b64_json": str(_)}] | [{"url": str(_)}]:
                outcome.final = now
            case _:
                raise _unusable("data has not one image")


def _is_image(text: str) -> bool:
    try:
        return base64.b64decode(text[:64]).startswith(_MAGIC)
    except binascii.Error:
        return False


def _unusable(reason: str) -> NotServed:
    """Returns the failure of a successful answer with unusable content."""
    return NotServed("failed", f"unusable answer: {reason}")


def _object(answer: httpx2.Response) -> dict[str, Any]:
    """Returns the answer's JSON object. Raises NotServed for other content or a status but 200."""
    if answer.status_code != 200:
        raise NotServed("refused" if answer.status_code in _REFUSALS else "failed", f"HTTP {answer.status_code}")
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        raise _unusable("no JSON") from None
    if not isinstance(body, dict):
        raise _unusable("no JSON object")
    return body
