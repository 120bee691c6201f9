"""Receivers of webhooks, good and bad, each on a port of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import uvicorn
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from chaos.journal import Journal

SECRET: Final = "the secret of all receivers"
DEAD: Final = "dead"
"""Answers nobody until it is revived."""
BEHAVIOURS: Final = ("healthy", "slow", "failing", "hanging", "redirecting", "skewed", DEAD)
_SKEW: Final = timedelta(minutes=4)
"""Behind the clock of the service, but within what receivers bear."""
_TOLERANCE: Final = timedelta(minutes=5)
_HANG_S: Final = 60.0


class Receiver:
    """Misbehaves at the first call of each delivery, and takes the second one; a healthy one takes the first.
    A dead one takes what comes after it was revived."""

    def __init__(self, behaviour: str, journal: Journal) -> None:
        self._behaviour = behaviour
        self._journal = journal
        self._calls: Counter[str] = Counter()
        self._dead = behaviour == DEAD
        self.app = Starlette(routes=[Route("/hook", self._receive, methods=["POST"])])
        self.port = 0
        self.closing = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def revive(self) -> None:
        self._dead = False

    async def _receive(self, request: Request) -> Response:
        body, webhook_id = await request.body(), request.headers["webhook-id"]
        self._check(request, body)
        self._journal.calls[webhook_id].append((self._behaviour, json.loads(body)))
        self._calls[webhook_id] += 1
        if self._dead:
            return await self._hang()
        if self._calls[webhook_id] == 1 and (refusal := await self._misbehave()):
            return refusal
        self._journal.delivered.add(webhook_id)
        return Response(status_code=204)

    async def _misbehave(self) -> Response | None:
        match self._behaviour:
            case "slow":
                await asyncio.sleep(1)
            case "failing":
                return Response("out of order", status_code=500)
            case "hanging":
                return await self._hang()
            case "redirecting":
                return RedirectResponse("http://127.0.0.1:1/elsewhere", status_code=307)
        return None

    async def _hang(self) -> Response:
        """Longer than any sender waits, but not beyond the end of the run."""
        give_up = time.monotonic() + _HANG_S
        while time.monotonic() < give_up and not self.closing:
            await asyncio.sleep(0.2)
        return Response("too late", status_code=503)

    def _check(self, request: Request, body: bytes) -> None:
        """As Standard Webhooks has it, by this receiver's own clock."""
        webhook_id, told = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        at = datetime.fromtimestamp(int(told), UTC)
        clock = datetime.now(UTC) - (_SKEW if self._behaviour == "skewed" else timedelta())
        signed = Webhook(SECRET.encode()).sign(webhook_id, at, body.decode())
        if signed != request.headers["webhook-signature"] or abs(clock - at) > _TOLERANCE:
            self._journal.forged.append(f"{webhook_id} at {told}")


@contextmanager
def receiving(journal: Journal) -> Iterator[dict[str, Receiver]]:
    """One receiver of each behaviour, in a thread of their own."""
    receivers = {behaviour: Receiver(behaviour, journal) for behaviour in BEHAVIOURS}
    sockets = {behaviour: socket.create_server(("127.0.0.1", 0), backlog=512) for behaviour in BEHAVIOURS}
    servers: list[uvicorn.Server] = []
    for behaviour, receiver in receivers.items():
        receiver.port = sockets[behaviour].getsockname()[1]
        config = uvicorn.Config(receiver.app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        servers.append(uvicorn.Server(config))

    async def serve() -> None:
        pairs = zip(servers, sockets.values(), strict=True)
        await asyncio.gather(*(server._serve([listener]) for server, listener in pairs))

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield receivers
    finally:
        for receiver, server in zip(receivers.values(), servers, strict=True):
            receiver.closing = server.should_exit = True
        thread.join()
        for listener in sockets.values():
            listener.close()
