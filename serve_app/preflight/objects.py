"""Whether an object store takes, gives, lists and deletes, and is the same one for all nodes."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from deployments.contract.objects import UNREACHABLE, ObjectStore
from serve_app.config.settings import Settings
from serve_app.preflight.finding import Finding, fine, refused

FOLDER: Final = "preflight"
_CONTENT: Final = b"may be deleted"
_WHAT: Final = "object store"
_WITHIN_S: Final = 5.0
_MEND: Final = "objects.url and its credentials have to be right on every node: put, get, list and delete are needed"


async def look(settings: Settings, where: str, seen_before: str | None = None) -> list[Finding]:
    """`seen_before` is the key of an object that another process wrote: all have to see the same store."""
    step = "opening it"
    key = f"{FOLDER}/{uuid.uuid4().hex}/{uuid.uuid4().hex}.txt"
    try:
        store = ObjectStore(settings.objects_url, settings.objects.options)
        async with asyncio.timeout(_WITHIN_S):
            step = "put"
            await store.put(key, _CONTENT, "text/plain")
            step = "get"
            if await store.get(key) != _CONTENT:
                return [refused(_WHAT, where, "it gives back something else", _MEND)]
            step = "list"
            if key not in await store.keys(key.rpartition("/")[0]):
                return [refused(_WHAT, where, "it does not list what was just written", _MEND)]
            step = "delete"
            await store.delete_prefix(key.rpartition("/")[0])
            if seen_before is not None:
                step = "get what another node wrote"
                await store.get(seen_before)
    except FileNotFoundError:
        mend = "a bucket, or a folder that all nodes share, in objects.url"
        return [refused(_WHAT, where, f"it has not what another node wrote: {settings.objects_url}", mend)]
    except (*UNREACHABLE, ValueError, TimeoutError) as problem:
        # The store's own words may hold addresses with signatures: only what kind of problem it is.
        return [refused(_WHAT, where, f"{step} failed: {type(problem).__name__}", _MEND)]
    return [fine(_WHAT, where, "put, get, list, delete")]


async def write_seen(settings: Settings) -> str | None:
    """Writes what others should see; returns its key, or None where nothing can be written."""
    key = f"{FOLDER}/{uuid.uuid4().hex}/seen.txt"
    try:
        async with asyncio.timeout(_WITHIN_S):
            await ObjectStore(settings.objects_url, settings.objects.options).put(key, _CONTENT, "text/plain")
    except (*UNREACHABLE, ValueError, TimeoutError):
        return None
    return key


async def delete_seen(settings: Settings, key: str) -> None:
    async with asyncio.timeout(_WITHIN_S):
        await ObjectStore(settings.objects_url, settings.objects.options).delete_prefix(key.rpartition("/")[0])
