"""The commands `gen-serve backup` and `gen-serve restore`."""

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
from serve_app.cli.store import open_redis, readable_object_store
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection, snapshot

_STORE: Final = "store.rdb"
_OBJECTS: Final = "objects.txt"
_MANIFEST: Final = "backup.json"
"""Written last: a backup without it is incomplete."""
_MAX_NAMES: Final = 5
"""Missing objects to name in the report."""


class _Manifest(BaseModel):
    at: float
    """Epoch seconds. The snapshot has no later write."""
    prefix: str
    sha256: str
    objects: int


def backup(folder: Annotated[Path, typer.Argument(help="Folder to create.")], config: Config = None) -> None:
    """Save a snapshot of the task store and the list of all objects, whether or not the service runs.

    Objects are not copied: they never change, and object stores have their own backups.
    """
    if folder.exists() and not {file.name for file in folder.iterdir()} <= {_STORE, _OBJECTS}:
        raise ValueError(f"{folder} is not empty")  # an interrupted backup is overwritten
    manifest = asyncio.run(_back_up(folder, config))
    print(f"saved the task store of {moment(manifest.at)} and the names of {manifest.objects} objects in {folder}")


def restore(
    folder: Annotated[Path, typer.Argument(help="A folder of gen-serve backup.")], config: Config = None
) -> None:
    """Load a backup into an empty task store, before a service runs on it. Safe to repeat."""
    manifest = _read(folder)
    keys, missing = asyncio.run(_restore(folder, manifest, config))
    print(f"restored {keys} keys of {moment(manifest.at)}")
    if missing:
        print(f"{len(missing)} of {manifest.objects} objects no longer exist: {', '.join(missing[:_MAX_NAMES])}")


async def _back_up(folder: Path, config: Path | None) -> _Manifest:
    async with open_redis(config) as (redis, prefix):
        _make_private(folder)
        at = time.time()
        try:
            await snapshot.take(redis, folder / _STORE)
        except snapshot.SnapshotFailed as problem:
            raise ServiceError(str(problem)) from None
    # Objects are listed after the snapshot, so one that it names and the list lacks was deleted since.
    keys = await readable_object_store(config).keys("")
    (folder / _OBJECTS).write_text("".join(f"{key}\n" for key in keys))
    manifest = _Manifest(at=at, prefix=prefix, sha256=_sha256(folder / _STORE), objects=len(keys))
    (folder / _MANIFEST).write_text(manifest.model_dump_json())
    return manifest


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _read(folder: Path) -> _Manifest:
    try:
        manifest = _Manifest.model_validate_json((folder / _MANIFEST).read_text())
    except (OSError, ValidationError):
        raise ValueError(f"{folder} holds no complete backup: {_MANIFEST} is missing or damaged") from None
    if _sha256(folder / _STORE) != manifest.sha256:
        raise ValueError(f"{folder} is damaged: {_STORE} is not the file that was backed up")
    return manifest


async def _restore(folder: Path, manifest: _Manifest, config: Path | None) -> tuple[int, list[str]]:
    """Returns the number of keys in the store, and the keys of missing objects."""
    async with open_redis(config, create=True) as (target, prefix):
        if prefix != manifest.prefix:
            raise ValueError(f"the backup is of a service with redis.prefix {manifest.prefix!r}, not {prefix!r}")
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
        # The marker is deleted last: while it exists, the restore can be repeated.
        object_keys = set(await readable_object_store(config).keys(""))
        await target.delete(snapshot.marker(prefix))
    return keys, [key for key in (folder / _OBJECTS).read_text().splitlines() if key not in object_keys]


async def _claim(target: Redis, prefix: str) -> None:
    """Marks the store as being restored. Raises ServiceError if it has other keys."""
    if not await target.exists(snapshot.marker(prefix)):
        async for key in target.scan_iter(f"{prefix}*", count=1000):
            raise ServiceError(f"the task store is not empty: it has {key}")
    await target.set(snapshot.marker(prefix), json.dumps({"since": time.time()}))


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
