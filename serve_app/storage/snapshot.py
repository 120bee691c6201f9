"""Snapshots of the task store: backup and restore.

The backup speaks as a replica does: the server forks and sends its data as an RDB file, while it goes on serving. The
snapshot is therefore consistent over all keys.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from serve_app.storage.pages import scan_prefix
from serve_app.storage.redis_internals import stream_reader

_CHUNK: Final = 1 << 20


class HalfRestored(RuntimeError):
    """A restore is running or was interrupted. The message says what to do."""


class SnapshotFailed(Exception):
    """The server does not send its data. The message says why."""


async def take(redis: Redis, file: Path) -> None:
    """Writes the server's data to `file`. Raises SnapshotFailed, RedisError."""
    connection: Any = await redis.connection_pool.get_connection()
    try:
        await connection.send_command("SYNC")
        # redis-py would parse the file as a reply.
        reader = stream_reader(connection)
        remaining = await _read_size(reader)
        with file.open("wb") as target:
            while remaining:
                chunk = await reader.read(min(_CHUNK, remaining))
                if not chunk:
                    raise SnapshotFailed("the server broke off")
                await asyncio.to_thread(target.write, chunk)
                remaining -= len(chunk)
    finally:
        # The server sends all further writes on this connection.
        await connection.disconnect(nowait=True)
        await redis.connection_pool.release(connection)


async def _read_size(reader: asyncio.StreamReader) -> int:
    """Returns the size of the file that follows. The server sends empty lines until it has written the file."""
    while not (line := (await reader.readline()).strip()):
        if reader.at_eof():
            raise SnapshotFailed("the server broke off")
    if not line.startswith(b"$"):
        raise SnapshotFailed(f"the server does not send its data: {line.decode(errors='replace').lstrip('-')}")
    return int(line[1:])


def marker(prefix: str) -> str:
    """Returns the key that exists while a store is being restored."""
    return f"{prefix}restoring"


async def check_whole(redis: Redis, prefix: str) -> None:
    """Raises HalfRestored."""
    if await redis.exists(marker(prefix)):
        raise HalfRestored("the task store is half restored: repeat gen-serve restore, or empty the store")


async def copy(source: Redis, target: Redis, prefix: str) -> int:
    """Copies every key below the prefix with its remaining life. Returns how many keys it copied."""
    count = 0
    async for keys in scan_prefix(source, prefix):
        reads = source.pipeline(transaction=False)
        for key in keys:
            reads.pttl(key)
            reads.dump(key)
        answers = await reads.execute()
        writes = target.pipeline(transaction=False)
        for key, life_ms, value in zip(keys, answers[::2], answers[1::2], strict=True):
            if value is not None:  # None if it has expired since
                writes.restore(key, max(0, life_ms), value, replace=True)
                count += 1
        await writes.execute()
    return count
