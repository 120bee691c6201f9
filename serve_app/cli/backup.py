"""`gen-serve backup` and `gen-serve restore`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import BaseModel, ValidationError
from redis.asyncio import Redis

from serve_app.cli.output import moment
from serve_app.cli.service import Config, ServiceError
from serve_app.cli.store import objects_to_read, open_redis
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection, snapshot

_STORE: Final = "store.rdb"
_OBJECTS: Final = "objects.txt"
_ABOUT: Final = "backup.json"
"""Written last: a folder without it holds no whole backup."""
_MAX_NAMES: Final = 5
"""Missing objects that are told by name."""


class _About(BaseModel):
    at: float
    """Epoch seconds. No later write is in the snapshot."""
    prefix: str
    sha256: str
    objects: int


def backup(folder: Annotated[Path, typer.Argument(help="Where to; it is made.")], config: Config = None) -> None:
    """Take a snapshot of the task store, whether the service runs or not, with the list of all objects.

    Objects are not copied: they never change, and object stores have means of their own.
    """
    if folder.exists() and not {file.name for file in folder.iterdir()} <= {_STORE, _OBJECTS}:
        raise ValueError(f"{folder} is not empty")  # what one that broke off left is taken again
    about = asyncio.run(_back_up(folder, config))
    print(f"the task store as it was at {moment(about.at)}, and the names of {about.objects} objects: {folder}")


def restore(
    folder: Annotated[Path, typer.Argument(help="What `gen-serve backup` made.")], config: Config = None
) -> None:
    """Put a snapshot into a task store that is empty, before a service runs on it. Safe to repeat."""
    about = _read(folder)
    keys, missing = asyncio.run(_restore(folder, about, config))
    print(f"{keys} keys, as they were at {moment(about.at)}")
    if missing:
        print(f"{len(missing)} of {about.objects} objects are gone since: {', '.join(missing[:_MAX_NAMES])}")


async def _back_up(folder: Path, config: Path | None) -> _About:
    async with open_redis(config) as (redis, prefix):
        _make(folder)
        at = time.time()
        try:
            await snapshot.take(redis, folder / _STORE)
        except snapshot.SnapshotFailed as problem:
            raise ServiceError(str(problem)) from None
    # After the snapshot: what it names was there, or was deleted since.
    keys = await objects_to_read(config).keys("")
    (folder / _OBJECTS).write_text("".join(f"{key}\n" for key in keys))
    about = _About(at=at, prefix=prefix, sha256=_sha256(folder / _STORE), objects=len(keys))
    (folder / _ABOUT).write_text(about.model_dump_json())
    return about


def _make(folder: Path) -> None:
    """For its owner alone: it will hold what clients wrote."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _read(folder: Path) -> _About:
    try:
        about = _About.model_validate_json((folder / _ABOUT).read_text())
    except (OSError, ValidationError):
        raise ValueError(f"{folder} holds no whole backup: {_ABOUT} is missing or damaged") from None
    if _sha256(folder / _STORE) != about.sha256:
        raise ValueError(f"{folder} is damaged: {_STORE} is not the file that was backed up")
    return about


async def _restore(folder: Path, about: _About, config: Path | None) -> tuple[int, list[str]]:
    """How many keys there are now, and which objects are missing."""
    async with open_redis(config, make=True) as (target, prefix):
        if prefix != about.prefix:
            raise ValueError(f"the backup is of a service with redis.prefix {about.prefix!r}, not {prefix!r}")
        await _claim(target, prefix)
        with tempfile.TemporaryDirectory() as temporary:
            shutil.copy(folder / _STORE, Path(temporary, "dump.rdb"))
            server = EmbeddedRedis(Path(temporary), durable=False)
            server.start()
            source = connection.connect(server.url)
            try:
                keys = await snapshot.copy(source, target, prefix)
            finally:
                await source.aclose()
                server.stop()
        # Before the marker goes: while it is there, all of it can be repeated.
        object_keys = set(await objects_to_read(config).keys(""))
        await target.delete(snapshot.marker(prefix))
    return keys, [key for key in (folder / _OBJECTS).read_text().splitlines() if key not in object_keys]


async def _claim(target: Redis, prefix: str) -> None:
    """Notes that the store is being filled. One that has something else in it is left alone."""
    if not await target.exists(snapshot.marker(prefix)):
        async for key in target.scan_iter(f"{prefix}*", count=1000):
            raise ServiceError(f"the task store is not empty: it has {key}, for one")
    await target.set(snapshot.marker(prefix), json.dumps({"since": time.time()}))


def _sha256(file: Path) -> str:
    with file.open("rb") as read:
        return hashlib.file_digest(read, "sha256").hexdigest()
