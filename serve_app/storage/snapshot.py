"""Snapshots of the task store: backup and restore.

It is taken as a replica takes it: the server forks and sends its data as an RDB file, while it serves on. So it is
consistent over all keys, however many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

from redis.asyncio import Redis

_PIECE: Final = 1 << 20
_BATCH: Final = 500


class HalfRestored(RuntimeError):
    """The store is being filled from a snapshot, or that broke off. The message says what to do."""


class SnapshotFailed(Exception):
    """The server does not send its data, or it can't be put back. The message says why."""


async def take(redis: Redis, file: Path) -> int:
    """Writes the server's data to `file`; returns how many bytes. Raises SnapshotFailed, RedisError."""
    connection: Any = await redis.connection_pool.get_connection()
    try:
        await connection.send_command("SYNC")
        # The client library reads replies; what follows here is a file.
        reader = cast(asyncio.StreamReader, connection._reader)
        size = await _read_size(reader)
        with file.open("wb") as target:
            remaining = size
            while remaining:
                piece = await reader.read(min(_PIECE, remaining))
                if not piece:
                    raise SnapshotFailed("the server broke off")
                await asyncio.to_thread(target.write, piece)
                remaining -= len(piece)
        return size
    finally:
        # What comes next on it is every write from now on.
        await connection.disconnect(nowait=True)
        await redis.connection_pool.release(connection)


async def _read_size(reader: asyncio.StreamReader) -> int:
    """The size of the file that follows. Until it has been written, the server sends empty lines."""
    while not (line := (await reader.readline()).strip()):
        if reader.at_eof():
            raise SnapshotFailed("the server broke off")
    if not line.startswith(b"$"):
        raise SnapshotFailed(f"the server does not send its data: {line.decode(errors='replace').lstrip('-')}")
    return int(line[1:])


def marker(prefix: str) -> str:
    """The key that is there while a store is being filled."""
    return f"{prefix}restoring"


async def check_whole(redis: Redis, prefix: str) -> None:
    """Raises HalfRestored."""
    if await redis.exists(marker(prefix)):
        raise HalfRestored("the task store is half restored: repeat gen-serve restore, or empty the store")


async def copy(source: Redis, target: Redis, prefix: str) -> int:
    """Writes every key below the prefix anew, with its remaining life; returns how many."""
    count = 0
    async for keys in _batches(source, prefix):
        reads = source.pipeline(transaction=False)
        for key in keys:
            reads.pttl(key)
            reads.dump(key)
        answers = await reads.execute()
        writes = target.pipeline(transaction=False)
        for key, life_ms, value in zip(keys, answers[::2], answers[1::2], strict=True):
            if value is not None:  # it has expired meanwhile
                writes.restore(key, max(0, life_ms), value, replace=True)
                count += 1
        await writes.execute()
    return count


async def _batches(redis: Redis, prefix: str) -> AsyncIterator[list[str]]:
    cursor = 0
    while True:
        cursor, keys = await redis.scan(cursor, match=f"{glob_literal(prefix)}*", count=_BATCH)
        if keys:
            yield cast(list[str], keys)
        if not cursor:
            return


def glob_literal(prefix: str) -> str:
    """Escapes a text for a Redis glob pattern."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in prefix)
