"""Blocking client."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2

from gen_serve_client.calls import Calls
from gen_serve_client.exchange import LOOPBACK_MOUNTS, Answer, HttpRequest, NoAnswer, Pause, Reply, Steps
from gen_serve_client.result import Result
from gen_serve_client.retries import Retries
from gen_serve_client.sending import no_answer, options, to_answer
from gen_serve_client.types import (
    DeletedFinetune,
    FinetuneDetails,
    Generate,
    Progress,
    Status,
    Submission,
    TaskPage,
    TaskResult,
)

T = TypeVar("T")


class Client:
    """Client of one service, for any number of threads. Use as a context manager, or close it.

    All methods raise OutOfReach if the service is unreachable or unavailable, UnexpectedAnswer if the address is not a
    gen-serve service, and Refused or one of its subclasses if the service rejects the request.
    """

    def __init__(
        self, base_url: str, key: str = "", *, retries: Retries | None = None, http: httpx2.Client | None = None
    ) -> None:
        """Raises ValueError for an invalid address or key.

        `base_url`: for example `http://127.0.0.1:8000`. `key`: polling, waiting and results work without one. `http`:
        an HTTP client with your own proxies or certificates; it is not closed.
        """
        self._calls = Calls(base_url, key, retries or Retries())
        self._http = http or httpx2.Client(mounts=LOOPBACK_MOUNTS)
        self._shared = http is not None

    @property
    def base_url(self) -> str:
        return self._calls.base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._shared:
            self._http.close()

    @property
    def generate(self) -> Generate[Result]:
        """Callable `generate(endpoint, **fields)` that submits a task, waits for it and returns the Result.

        `idempotency_key` works as in `submit`, `progress` and `timeout_s` as in `wait`.
        """
        return self._generate

    def submit(self, endpoint: str, body: Mapping[str, object], idempotency_key: str | None = None) -> Submission:
        """Submits a task: `submit("gen-3-image-klein", {"prompt": "a red star"})["id"]`.

        Retries never make a second task. With an idempotency key of your own (1 to 255 characters), neither do further
        calls for a day, even after a restart of your program.
        """
        return self._run(self._calls.submit(endpoint, body, idempotency_key))

    def poll(self, task_id: str, wait: float = 0) -> TaskResult:
        """Returns the task once it ends, or after `wait` seconds (0 to 60). An unknown one is `Task not found`."""
        return self._run(self._calls.poll(task_id, wait))

    def wait(self, task_id: str, *, progress: Progress | None = None, timeout_s: float | None = None) -> Result:
        """Waits for the result. Calls `progress` with the task twice a second and at the end.

        Raises Moderated or TaskFailed for a task without a result, TaskNotFound, and NotInTime after `timeout_s`
        seconds, or later if an answer hangs.
        """
        return self._result(self._run(self._calls.wait(task_id, progress, timeout_s)))

    def fetch(self, url: str) -> bytes:
        """Downloads a file from a result link. The key never goes to another host."""
        return self._run(self._calls.fetch(url))

    def cancel(self, task_id: str) -> TaskResult:
        """Cancels a task, which ends as `Error` for free. Raises TaskNotFound, or Refused (409) if it has ended."""
        return self._run(self._calls.cancel(task_id))

    def tasks(
        self,
        *,
        limit: int = 20,
        cursor: str | None = None,
        active: bool = False,
        statuses: Sequence[Status] = (),
        endpoint: str | None = None,
        since: float | None = None,
    ) -> TaskPage:
        """Returns a page of the project's tasks, newest first. `limit`: 1 to 100; `cursor`: `next` of the last page.

        `active`: only unfinished tasks. `statuses`, `endpoint`: only these. `since`: only those submitted since that
        epoch second.
        """
        return self._run(self._calls.tasks(limit, cursor, active, statuses, endpoint, since))

    def credits(self) -> float:
        """Returns the credits left to the key's organization."""
        return self._run(self._calls.credits())

    def upload_finetune(self, file: str | PathLike[str], base: str, name: str) -> FinetuneDetails:
        """Uploads a safetensors file (LoRA) made for the endpoint `base`. Raises OSError if it can't be read.

        It is not retried: after OutOfReach, check `finetunes` for it.
        """
        return self._run(self._calls.upload_finetune(Path(file), base, name))

    def finetunes(self) -> list[FinetuneDetails]:
        """Returns the project's tuned models, newest first."""
        return self._run(self._calls.finetunes())

    def delete_finetune(self, finetune_id: str) -> DeletedFinetune:
        """Deletes a tuned model. Tasks that wait to use it end as `Error`."""
        return self._run(self._calls.delete_finetune(finetune_id))

    def ready(self) -> bool:
        """Returns whether the service takes requests now, without retries."""
        return self._run(self._calls.ready())

    def openapi(self) -> dict[str, Any]:
        """Returns the service's OpenAPI document."""
        return self._run(self._calls.openapi())

    def _generate(
        self,
        endpoint: str,
        *,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Result:
        task_id = self.submit(endpoint, fields, idempotency_key)["id"]
        return self.wait(task_id, progress=progress, timeout_s=timeout_s)

    def _result(self, task: TaskResult) -> Result:
        return Result(task, lambda task: self._run(self._calls.content(task)))

    def _run(self, steps: Steps[T]) -> T:
        answer: Reply = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                answer = None
            else:
                answer = self._send(step)

    def _send(self, request: HttpRequest) -> Answer | NoAnswer:
        with ExitStack() as stack:
            content = request.content
            if isinstance(content, Path):
                content = stack.enter_context(content.open("rb"))
            try:
                response = self._http.request(content=content, **options(request))
            except httpx2.HTTPError as problem:
                return no_answer(problem)
        return to_answer(response)
