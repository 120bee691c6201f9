"""Memory of request bodies: the budget that all requests share, and its return to the system."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from fastapi import FastAPI, Request
from starlette.requests import HTTPConnection

from serve_app.api import errors
from serve_app.api.bodies import KEYLESS_BYTES, BodyLimits

MB = 2**20
ROOM = 4 * MB
PATIENCE_S = 60


class EchoService:
    """Returns the size of each body, at other paths than `/` once `answers` is set."""

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

    async def _check(self, request: HTTPConnection) -> None:
        """Accepts every key."""

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


@asynccontextmanager
async def held(
    service: EchoService, client: httpx2.AsyncClient, content: bytes | AsyncIterator[bytes], path: str = "/slow"
) -> AsyncIterator[asyncio.Task[httpx2.Response]]:
    """Sends a body whose answer comes after the block."""
    call = asyncio.create_task(client.post(path, content=content))
    async with asyncio.timeout(PATIENCE_S):
        await service.read.wait()
    yield call
    service.answers.set()
    await asyncio.gather(call, return_exceptions=True)


async def make_chunks(*sizes: int) -> AsyncIterator[bytes]:
    """Yields a body without a declared length."""
    for size in sizes:
        yield bytes(size)


def assert_no_room(response: httpx2.Response) -> None:
    assert response.status_code == 503
    assert "Too many large requests at a time" in response.json()["detail"]
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["connection"] == "close", "the rest of the body stays unread"


async def test_body_holds_its_memory_until_its_answer(service: EchoService, client: httpx2.AsyncClient) -> None:
    async with held(service, client, bytes(3 * MB)) as slow:
        assert_no_room(await client.post("/", content=bytes(MB + 1)))
        assert (await client.post("/", content=bytes(MB))).json() == MB
    assert slow.result().json() == 3 * MB
    assert (await client.post("/", content=bytes(ROOM))).json() == ROOM


async def test_small_body_is_accepted_beyond_the_budget(service: EchoService, client: httpx2.AsyncClient) -> None:
    async with held(service, client, bytes(ROOM)):
        assert (await client.post("/", content=bytes(KEYLESS_BYTES))).json() == KEYLESS_BYTES
        assert_no_room(await client.post("/", content=bytes(KEYLESS_BYTES + 1)))


async def test_declared_length_counts_from_the_beginning(client: httpx2.AsyncClient) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def slow_chunks() -> AsyncIterator[bytes]:
        yield bytes(1)
        began.set()
        await goes_on.wait()
        yield bytes(ROOM - 1)

    slow = asyncio.create_task(client.post("/", content=slow_chunks(), headers={"content-length": str(ROOM)}))
    async with asyncio.timeout(PATIENCE_S):
        await began.wait()
    assert_no_room(await client.post("/", content=bytes(MB)))
    goes_on.set()
    assert (await slow).json() == ROOM


async def test_body_without_a_declared_length_counts_as_it_comes(
    service: EchoService, client: httpx2.AsyncClient
) -> None:
    async with held(service, client, make_chunks(MB, MB)):
        assert_no_room(await client.post("/", content=make_chunks(MB, MB, 1)))
        assert (await client.post("/", content=make_chunks(MB, MB))).json() == 2 * MB, "the refused body is freed"


async def test_cancelled_request_frees_its_memory(service: EchoService, client: httpx2.AsyncClient) -> None:
    async with held(service, client, bytes(ROOM)) as slow:
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert (await client.post("/", content=bytes(ROOM))).json() == ROOM


async def test_upload_needs_no_memory(service: EchoService, client: httpx2.AsyncClient) -> None:
    async with held(service, client, bytes(2 * ROOM), "/upload") as upload:
        assert (await client.post("/", content=bytes(ROOM))).json() == ROOM
    assert upload.result().json() == 2 * ROOM


SCRIPT = """
import resource
from pathlib import Path
from serve_app.api.memory import tune_malloc

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 2**20

tune_malloc()
bytearray(31 * 2**20)  # by default, glibc would keep blocks of up to this size from now on
before, stay, bodies = resident_mb(), [], []
for _ in range(10):
    bodies.append(b"x" * (16 * 2**20))
    stay.append([bytes(600) for _ in range(100)])
held = resident_mb() - before
del bodies
print(held, resident_mb() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc of glibc")
def test_freed_blocks_return_to_the_system() -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    peak_mb, retained_mb = map(int, result.stdout.split())
    assert peak_mb >= 150
    assert retained_mb < 16
