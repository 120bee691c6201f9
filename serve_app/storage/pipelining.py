"""Redis client whose coroutines share one pipelined connection.

Reads and scripts, which may be repeated, are written together once per iteration of the event loop, and answers come in
their order. Against one connection of redis-py's pool per command, that saves half of the client's CPU in each call, a
tenth of a whole task's. Other commands, pipelines and pub/sub use the pool, as does everything while the shared
connection is down: redis-py waits for a server, finds the next primary and gives up in time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Final

import hiredis
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.sentinel import SentinelManagedConnection
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)

from serve_app.storage import redis_internals
from serve_app.storage.refusals import translate_refusals

_SHARED: Final = frozenset({"EVALSHA", "EXISTS", "GET", "HGET", "HGETALL", "HMGET"})
TRY_AGAIN: Final = (BusyLoadingError, ClusterDownError, OutOfMemoryError, ReadOnlyError)
"""Errors of a server that can't run a command now. The pool repeats it, perhaps at another server."""
_PRIMARY_CHECK_S: Final = 2.0
_UNSENT: Final = object()
_INCOMPLETE: Final = object()


class PipelinedRedis(Redis):
    _shared: SharedConnection | None = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        with translate_refusals():
            if args[0] in _SHARED:
                if self._shared is None:
                    self._shared = SharedConnection(self.connection_pool)
                answer = await self._shared.call(args)
                if isinstance(answer, Exception):
                    raise answer
                if answer is not _UNSENT:
                    return self.response_callbacks[args[0]](answer) if args[0] in self.response_callbacks else answer
            return await super().execute_command(*args, **options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return StorePipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        if self._shared is not None:
            await self._shared.close()
        await super().aclose(close_connection_pool)


class StorePipeline(Pipeline):
    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        with translate_refusals():
            return await super().execute(raise_on_error)


class SharedConnection(asyncio.Protocol):
    """Protocol of a connection of the pool, from its authentication on."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._connecting: asyncio.Task[None] | None = None
        self._connection: AbstractConnection | None = None
        self._unwritten: list[bytes] = []
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        """Callers that wait for an answer, and the time of their commands."""
        self._timer: asyncio.TimerHandle | None = None
        self._following: asyncio.Task[None] | None = None

    async def call(self, args: tuple[Any, ...]) -> Any:
        """Returns the answer or the server's error; _UNSENT if the pool must send the command (again)."""
        if self._connection is None:
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.create_task(self._connect())
            return _UNSENT
        loop = asyncio.get_running_loop()
        if not self._unwritten:
            loop.call_soon(self._write)
        self._unwritten += self._connection.pack_command(*args)
        answer = loop.create_future()
        self._waiting.append((answer, loop.time()))
        return await answer

    async def close(self) -> None:
        for task in (self._connecting, self._following):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._drop()

    async def _connect(self) -> None:
        connection = self._pool.make_connection()
        try:
            await connection.connect()
        except (RedisError, OSError):
            return  # the pool raises it to the callers
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=redis_internals.error_parser(connection),
            notEnoughData=_INCOMPLETE,
            encoding="utf-8",
        )
        self._transport = redis_internals.transport(connection)
        self._stream_protocol = self._transport.get_protocol()
        self._transport.set_protocol(self)
        self._connection = connection
        if isinstance(connection, SentinelManagedConnection):
            self._following = asyncio.create_task(self._follow_primary(connection))

    async def _follow_primary(self, connection: SentinelManagedConnection) -> None:
        """Drops the connection once Sentinel names another primary. The old one may still answer reads."""
        while self._connection is connection:
            await asyncio.sleep(_PRIMARY_CHECK_S)
            with suppress(RedisError, OSError):
                if await connection.connection_pool.get_master_address() != (connection.host, connection.port):
                    self._drop()
                    return

    def _write(self) -> None:
        if self._unwritten:  # empty if the connection was lost
            self._transport.write(b"".join(self._unwritten))
            self._unwritten.clear()
            if self._timer is None:
                self._check_timeout()

    def _check_timeout(self) -> None:
        """Drops the connection once its oldest command has waited too long."""
        self._timer = None
        if self._connection is None or not self._waiting or not (limit_s := self._connection.socket_timeout):
            return
        loop = asyncio.get_running_loop()
        due = self._waiting[0][1] + limit_s
        if due <= loop.time():
            self._drop()
        else:
            self._timer = loop.call_at(due, self._check_timeout)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not _INCOMPLETE:
            if isinstance(answer, hiredis.PushNotification):
                continue
            caller, _ = self._waiting.popleft()
            if not caller.done():
                caller.set_result(_UNSENT if isinstance(answer, TRY_AGAIN) else answer)
            if isinstance(answer, ReadOnlyError):
                self._drop()  # the server is no primary any more
                return

    def connection_lost(self, exc: Exception | None) -> None:
        self._stream_protocol.connection_lost(exc)  # else closing the stream would wait for ever
        self._drop()

    def _drop(self) -> None:
        """Drops the connection. The pool repeats the commands without an answer."""
        if self._connection is not None:
            self._transport.abort()
            redis_internals.close(self._connection)
        self._connection = None
        self._unwritten.clear()
        while self._waiting:
            caller, _ = self._waiting.popleft()
            if not caller.done():
                caller.set_result(_UNSENT)
