"""Checks of the object store: put, get, list and delete, and that all nodes see the same store."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from deployments.contract.objects import UNREACHABLE, ObjectStore, WrongOptions
from serve_app.cluster.checks.result import CheckResult
from serve_app.config.settings import Settings

FOLDER: Final = "preflight"
_CONTENT: Final = b"may be deleted"
_WHAT: Final = "object store"
_TIMEOUT_S: Final = 5.0
_REMEDY: Final = "correct objects.url and its credentials on every node: put, get, list and delete are needed"


async def check_objects(settings: Settings, shared_key: str | None = None) -> CheckResult:
    """`shared_key` is the key of an object that another process wrote to the same store."""
    step = "opening it"
    key = f"{FOLDER}/{uuid.uuid4().hex}/{uuid.uuid4().hex}.txt"
    try:
        store = _open(settings)
        async with asyncio.timeout(_TIMEOUT_S):
            step = "put"
            await store.put(key, _CONTENT, "text/plain")
            step = "get"
            if await store.get(key) != _CONTENT:
                return CheckResult.refused(_WHAT, "it returns other content than was written", _REMEDY)
            step = "list"
            if key not in await store.keys(key.rpartition("/")[0]):
                return CheckResult.refused(_WHAT, "it does not list an object that was just written", _REMEDY)
            step = "delete"
            await store.delete_prefix(key.rpartition("/")[0])
            if shared_key is not None:
                step = "get what another node wrote"
                await store.get(shared_key)
    except FileNotFoundError:
        message = f"it lacks an object that another node wrote: {settings.objects_url}"
        return CheckResult.refused(_WHAT, message, "name a bucket, or a folder that all nodes share, in objects.url")
    except WrongOptions as problem:
        return CheckResult.refused(_WHAT, str(problem), "correct objects.options")
    except (*UNREACHABLE, ValueError, TimeoutError) as problem:
        # The store's own message may hold signed URLs.
        return CheckResult.refused(_WHAT, f"{step} failed: {type(problem).__name__}", _REMEDY)
    return CheckResult.fine(_WHAT, "put, get, list, delete")


async def write_shared_object(settings: Settings) -> str | None:
    """Writes an object for the checks of other nodes. Returns its key, or None if the store can't be written."""
    key = f"{FOLDER}/{uuid.uuid4().hex}/seen.txt"
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await _open(settings).put(key, _CONTENT, "text/plain")
    except (*UNREACHABLE, ValueError, TimeoutError):
        return None
    return key


async def delete_shared_object(settings: Settings, key: str) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        await _open(settings).delete_prefix(key.rpartition("/")[0])


def _open(settings: Settings) -> ObjectStore:
    return ObjectStore(settings.objects_url, settings.objects.options)
