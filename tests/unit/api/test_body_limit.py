"""How much of bodies is held at a time, of all requests together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI, Request
from starlette.requests import HTTPConnection

from serve_app.api import errors
from serve_app.api.bodies import KEYLESS_BYTES, BodyLimits

MB = 2**20
ROOM = 4 * MB
PATIENCE_S = 60


async def wait_for(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await event.wait()


class EchoService:
    """Reads bodies, says how large they are, and answers those at `/slow` once `answers` is set."""

    def __init__(self) -> None:
        self.read = asyncio.Event()
        self.answers = asyncio.Event()
        self.app = FastAPI()
        errors.install(self.app)
        self.app.add_middleware(
            BodyLimits, max_bytes=ROOM, max_inflight_bytes=ROOM, check=self._check, uploads={"/upload": 2 * ROOM}
        )
        for path in ("/", "/slow", "/upload"):
            self.app.add_api_route(path, self._answer, methods=["POST"])

    async def has_read(self) -> None:
        """Returns once a body is read whose answer is still to come."""
        await wait_for(self.read)

    async def _check(self, request: HTTPConnection) -> None:
        """Every key is good."""

    async def _answer(self, request: Request) -> int:
        size = len(await request.body())
        if request.url.path != "/":
            self.read.set()
            await self.answers.wait()
        return size


@pytest.fixture
def service() -> EchoService:
    return EchoService()


@pytest.fixture
async def client(service: EchoService) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=service.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://service", headers={"x-key": "k"}) as client:
        yield client


async def make_chunks(
    *sizes: int, pause: asyncio.Event | None = None, began: asyncio.Event | None = None
) -> AsyncIterator[bytes]:
    """A body without a declared length: its first part, a pause, and the rest."""
    first, *rest = sizes
    yield bytes(first)
    if began is not None:
        began.set()
    if pause is not None:
        await pause.wait()
    for size in rest:
        yield bytes(size)


def assert_no_room(response: httpx2.Response) -> None:
    assert response.status_code == 503
    assert "Too many large requests at a time" in response.json()["detail"]
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["connection"] == "close", "the rest of the body stays unread"


async def test_bodies_have_room_until_their_answer(service: EchoService, client: httpx2.AsyncClient) -> None:
    slow = asyncio.create_task(client.post("/slow", content=bytes(3 * MB)))
    await service.has_read()
    assert_no_room(await client.post("/", content=bytes(MB + 1)))
    assert (await client.post("/", content=bytes(MB))).json() == MB, "what fits is taken"
    service.answers.set()
    assert (await slow).json() == 3 * MB
    assert (await client.post("/", content=bytes(ROOM))).json() == ROOM


async def test_small_bodies_are_taken_when_large_ones_fill_the_room(
    service: EchoService, client: httpx2.AsyncClient
) -> None:
    slow = asyncio.create_task(client.post("/slow", content=bytes(ROOM)))
    await service.has_read()
    assert (await client.post("/", content=bytes(KEYLESS_BYTES))).json() == KEYLESS_BYTES
    assert_no_room(await client.post("/", content=bytes(KEYLESS_BYTES + 1)))
    service.answers.set()
    await slow


async def test_a_declared_length_counts_before_it_comes(client: httpx2.AsyncClient) -> None:
    began, rest = asyncio.Event(), asyncio.Event()
    body = make_chunks(1, ROOM - 1, pause=rest, began=began)
    slow = asyncio.create_task(client.post("/", content=body, headers={"content-length": str(ROOM)}))
    await wait_for(began)
    assert_no_room(await client.post("/", content=bytes(MB)))
    rest.set()
    assert (await slow).json() == ROOM


async def test_without_a_declared_length_what_comes_counts(service: EchoService, client: httpx2.AsyncClient) -> None:
    slow = asyncio.create_task(client.post("/slow", content=make_chunks(MB, MB)))
    await service.has_read()
    assert_no_room(await client.post("/", content=make_chunks(MB, MB, 1)))
    assert (await client.post("/", content=make_chunks(MB, MB))).json() == 2 * MB, "what was refused has left its room"
    service.answers.set()
    assert (await slow).json() == 2 * MB


async def test_a_request_that_breaks_off_leaves_its_room(service: EchoService, client: httpx2.AsyncClient) -> None:
    slow = asyncio.create_task(client.post("/slow", content=bytes(ROOM)))
    await service.has_read()
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    assert (await client.post("/", content=bytes(ROOM))).json() == ROOM


async def test_uploads_take_no_room(service: EchoService, client: httpx2.AsyncClient) -> None:
    upload = asyncio.create_task(client.post("/upload", content=bytes(2 * ROOM)))
    await service.has_read()
    assert (await client.post("/", content=bytes(ROOM))).json() == ROOM
    service.answers.set()
    assert (await upload).json() == 2 * ROOM
