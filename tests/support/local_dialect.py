"""A server that speaks as much of the dialect as the load generators need, in this process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit


class LocalDialect:
    """Tasks end as `Ready` on their second poll; every `refuse_every`-th submission is refused; ids in `forgotten`
    never end."""

    def __init__(self, refuse_every: int = 0, forgotten: frozenset[int] = frozenset()) -> None:
        self.base_url = ""
        self.submitted: list[float] = []
        self.begun = 0
        """Requests that have come, answered or not."""
        self.answer_after = 0.0
        self._polls: dict[str, int] = {}
        self._refuse_every = refuse_every
        self._forgotten = forgotten

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[LocalDialect]:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if "content-length: " in head:
                    await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
                method, target = head.split()[:2]
                self.begun += 1
                await asyncio.sleep(self.answer_after)
                status, answer = self._submit() if method == "post" else self._poll(target)
                data = json.dumps(answer).encode()
                writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _submit(self) -> tuple[int, object]:
        self.submitted.append(time.time())
        number = len(self.submitted)
        if self._refuse_every and number % self._refuse_every == 0:
            return 429, {"detail": "too many"}
        return 200, {"id": str(number), "polling_url": f"{self.base_url}/v1/get_result?id={number}"}

    def _poll(self, target: str) -> tuple[int, object]:
        task = parse_qs(urlsplit(target).query)["id"][0]
        self._polls[task] = self._polls.get(task, 0) + 1
        if int(task) in self._forgotten or self._polls[task] < 2:
            return 200, {"id": task, "status": "Pending", "result": None}
        now = time.time()
        return 200, {"id": task, "status": "Ready", "result": {"start_time": now - 0.02, "end_time": now}}
