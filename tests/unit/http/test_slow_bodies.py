from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from fastapi import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from serve_app.http.slow_bodies import SlowBodies

LONG_S = 3600.0
SCOPE: Scope = {"type": "http", "method": "POST", "path": "/", "headers": []}


async def received(
    parts: Sequence[int], every_s: float, *, min_rate: int = 1, max_s: float = LONG_S, grace_s: float = LONG_S
) -> int:
    """The length of a body that comes in parts, after a pause each, as the app sees it."""
    left = list(parts)
    read = 0

    async def receive() -> Message:
        await asyncio.sleep(every_s)
        part = left.pop(0)
        return {"type": "http.request", "body": bytes(part), "more_body": bool(left)}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal read
        read = len(await Request(scope, receive).body())

    async def send(message: Message) -> None:
        raise AssertionError("nothing was answered")

    await SlowBodies(app, min_rate, max_s, grace_s)(SCOPE, receive, send)
    return read


async def test_a_body_that_comes_in_time_is_read() -> None:
    assert await received([10, 0, 20], 0) == 30


async def test_one_that_never_comes_is_ended() -> None:
    with pytest.raises(HTTPException, match="too slowly") as refusal:
        await received([1], LONG_S, grace_s=0.05)
    assert refusal.value.status_code == 408
    assert refusal.value.headers == {"Connection": "close"}


async def test_one_that_trickles_is_ended() -> None:
    with pytest.raises(HTTPException, match="at least 1000000 bytes a second"):
        await received([1] * 1000, 0.02, min_rate=1_000_000, grace_s=0.1)


async def test_one_that_goes_on_too_long_is_ended_however_fast_it_comes() -> None:
    with pytest.raises(HTTPException, match="too slowly: it has to be complete within"):
        await received([10_000] * 1000, 0.02, min_rate=1, max_s=0.1)


async def test_what_has_come_buys_time() -> None:
    """With a byte a second wanted, the first part is worth an hour; the grace alone is over with the second one."""
    assert await received([3600, *[1] * 5], 0.05, min_rate=1, grace_s=0.2) == 3605


async def test_the_apps_own_time_does_not_count() -> None:
    parts: list[Message] = [{"type": "http.request", "body": b"x", "more_body": more} for more in (True, True, False)]

    async def receive() -> Message:
        return parts.pop(0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(3):
            await receive()
            await asyncio.sleep(0.2)

    async def send(message: Message) -> None: ...

    await SlowBodies(app, 1_000_000, LONG_S, grace_s=0.2)(SCOPE, receive, send)


async def test_after_the_body_the_end_of_the_connection_may_take_any_time() -> None:
    parts: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        if len(parts) == 1:
            await asyncio.sleep(0.2)
        return parts.pop(0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await Request(scope, receive).body() == b""
        assert await receive() == {"type": "http.disconnect"}

    async def send(message: Message) -> None: ...

    await SlowBodies(app, 1, LONG_S, grace_s=0.05)(SCOPE, receive, send)


async def test_paths_with_bounds_of_their_own_are_left_alone() -> None:
    received: Message = {"type": "http.request", "body": b"x", "more_body": True}

    async def receive() -> Message:
        await asyncio.sleep(0.1)
        return received

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await receive() == received

    async def send(message: Message) -> None: ...

    await SlowBodies(app, 1, LONG_S, grace_s=0.01, uploads=["/"])(SCOPE, receive, send)
