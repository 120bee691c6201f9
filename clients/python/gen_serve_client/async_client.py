"""Client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2

from gen_serve_client.calls import Calls
from gen_serve_client.exchange import LOOPBACK_MOUNTS, Answer, HttpRequest, NoAnswer, Pause, Reply, Steps
from gen_serve_client.result import AsyncResult
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

_CHUNK_BYTES = 1 << 20


class AsyncClient:
    """Client for asyncio with the methods, arguments and exceptions of `Client`.

    Use as a context manager, or close it.
    """

    def __init__(
        self, base_url: str, key: str = "", *, retries: Retries | None = None, http: httpx2.AsyncClient | None = None
    ) -> None:
        self._calls = Calls(base_url, key, retries or Retries())
        self._http = http or httpx2.AsyncClient(mounts=LOOPBACK_MOUNTS)
        self._shared = http is not None

    @property
    def base_url(self) -> str:
        return self._calls.base_url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if not self._shared:
            await self._http.aclose()

    @property
    def generate(self) -> Generate[Coroutine[Any, Any, AsyncResult]]:
        """See `Client.generate`: `await client.generate(endpoint, **fields)`."""
        return self._generate

    async def submit(self, endpoint: str, body: Mapping[str, object], idempotency_key: str | None = None) -> Submission:
        """See `Client.submit`."""
        return await self._run(self._calls.submit(endpoint, body, idempotency_key))

    async def poll(self, task_id: str, wait: float = 0) -> TaskResult:
        """See `Client.poll`."""
        return await self._run(self._calls.poll(task_id, wait))

    async def wait(
        self, task_id: str, *, progress: Progress | None = None, timeout_s: float | None = None
    ) -> AsyncResult:
        """See `Client.wait`."""
        return self._result(await self._run(self._calls.wait(task_id, progress, timeout_s)))

    async def fetch(self, url: str) -> bytes:
        """See `Client.fetch`."""
        return await self._run(self._calls.fetch(url))

    async def cancel(self, task_id: str) -> TaskResult:
        """See `Client.cancel`."""
        return await self._run(self._calls.cancel(task_id))

    async def tasks(
        self,
        *,
        limit: int = 20,
        cursor: str | None = None,
        active: bool = False,
        statuses: Sequence[Status] = (),
        endpoint: str | None = None,
        since: float | None = None,
    ) -> TaskPage:
        """See `Client.tasks`."""
        return await self._run(self._calls.tasks(limit, cursor, active, statuses, endpoint, since))

    async def credits(self) -> float:
        """See `Client.credits`."""
        return await self._run(self._calls.credits())

    async def upload_finetune(self, file: str | PathLike[str], base: str, name: str) -> FinetuneDetails:
        """See `Client.upload_finetune`."""
        return await self._run(self._calls.upload_finetune(Path(file), base, name))

    async def finetunes(self) -> list[FinetuneDetails]:
        """See `Client.finetunes`."""
        return await self._run(self._calls.finetunes())

    async def delete_finetune(self, finetune_id: str) -> DeletedFinetune:
        """See `Client.delete_finetune`."""
        return await self._run(self._calls.delete_finetune(finetune_id))

    async def ready(self) -> bool:
        """See `Client.ready`."""
        return await self._run(self._calls.ready())

    async def openapi(self) -> dict[str, Any]:
        """See `Client.openapi`."""
        return await self._run(self._calls.openapi())

    async def _generate(
        self,
        endpoint: str,
        *,
        progress: Progress | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> AsyncResult:
        task_id = (await self.submit(endpoint, fields, idempotency_key))["id"]
        return await self.wait(task_id, progress=progress, timeout_s=timeout_s)

    def _result(self, task: TaskResult) -> AsyncResult:
        return AsyncResult(task, lambda task: self._run(self._calls.content(task)))

    async def _run(self, steps: Steps[T]) -> T:
        answer: Reply = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                answer = None
            else:
                answer = await self._send(step)

    async def _send(self, request: HttpRequest) -> Answer | NoAnswer:
        content = _chunks(request.content) if isinstance(request.content, Path) else request.content
        try:
            response = await self._http.request(content=content, **options(request))
        except httpx2.HTTPError as problem:
            return no_answer(problem)
        return to_answer(response)


async def _chunks(file: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(file.open, "rb") as content:
        while chunk := await asyncio.to_thread(content.read, _CHUNK_BYTES):
            yield chunk
