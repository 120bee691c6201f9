"""The client for programs that do one thing after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2

from gen_serve_client.calls import Calls
from gen_serve_client.exchange import LOOPBACK_MOUNTS, Answer, NoAnswer, Pause, Reply, Request, Steps
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
    """Talks to one service, from any number of threads. Use as a context manager, or close it.

    All methods raise OutOfReach when the service can't be reached or can't work, UnexpectedAnswer when it is no such
    service, and Refused, or one of its kinds, when it says no.
    """

    def __init__(
        self, base_url: str, key: str = "", *, retries: Retries | None = None, http: httpx2.Client | None = None
    ) -> None:
        """`base_url` is `http://127.0.0.1:8000`, say. Without a `key`, tasks can be polled and waited for.

        `http` is for proxies or certificates of your own; it is left open. Raises ValueError for what is no address.
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
        """`generate(endpoint, **fields)` submits, waits, and returns the Result once it is there.

        `progress` and `timeout_s` are those of `wait`, whose exceptions it raises, too; `idempotency_key` is that of
        `submit`.
        """
        return self._generate

    def submit(self, endpoint: str, body: Mapping[str, object], idempotency_key: str | None = None) -> Submission:
        """Has a task made: `submit("gen-3-image-klein", {"prompt": "a red star"})["id"]`.

        However often it has to be sent, there will be one task. A key of your own (1 to 255 characters) makes that
        so for a day, over restarts of your program, too.
        """
        return self._run(self._calls.submit(endpoint, body, idempotency_key))

    def poll(self, task_id: str, wait: float = 0) -> TaskResult:
        """The task as soon as it has ended, or as it is after `wait` seconds (0 to 60). Unknown: `Task not found`."""
        return self._run(self._calls.poll(task_id, wait))

    def wait(self, task_id: str, *, progress: Progress | None = None, timeout_s: float | None = None) -> Result:
        """The result, once it is there. `progress` sees the task twice a second, and at the end.

        Raises Moderated or TaskFailed when it came to nothing, TaskNotFound, and NotInTime after `timeout_s` seconds,
        which an answer that hangs may exceed.
        """
        return self._result(self._run(self._calls.wait(task_id, progress, timeout_s)))

    def fetch(self, url: str) -> bytes:
        """The file behind a result link, which may lie on another host: that one never sees the key."""
        return self._run(self._calls.fetch(url))

    def cancel(self, task_id: str) -> TaskResult:
        """Ends a task as `Error`, free of charge. Raises TaskNotFound, and Refused (409) for one that has ended."""
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
        """A page of the project's tasks, newest first, 1 to 100; `cursor` is `next` of the page before.

        Only those on their way if `active`, of these `statuses`, of one `endpoint`, submitted since an epoch second.
        """
        return self._run(self._calls.tasks(limit, cursor, active, statuses, endpoint, since))

    def credits(self) -> float:
        """What the key's organization has left."""
        return self._run(self._calls.credits())

    def upload_finetune(self, file: str | PathLike[str], base: str, name: str) -> FinetuneDetails:
        """Uploads a safetensors file (LoRA) made for the endpoint `base`. Raises OSError when it can't be read.

        It is sent once: after OutOfReach, `finetunes` tells whether it arrived.
        """
        return self._run(self._calls.upload_finetune(Path(file), base, name))

    def finetunes(self) -> list[FinetuneDetails]:
        """The project's tuned models, newest first."""
        return self._run(self._calls.finetunes())

    def delete_finetune(self, finetune_id: str) -> DeletedFinetune:
        """Deletes a tuned model. Tasks that use it and have not begun end as `Error`."""
        return self._run(self._calls.delete_finetune(finetune_id))

    def ready(self) -> bool:
        """Whether the service takes requests now, asked once."""
        return self._run(self._calls.ready())

    def openapi(self) -> dict[str, Any]:
        """The service's description of itself."""
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

    def _send(self, request: Request) -> Answer | NoAnswer:
        with ExitStack() as stack:
            content = request.content
            if isinstance(content, Path):
                content = stack.enter_context(content.open("rb"))
            try:
                response = self._http.request(content=content, **options(request))
            except httpx2.HTTPError as problem:
                return no_answer(problem)
        return to_answer(response)
