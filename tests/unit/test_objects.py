"""Deletion of the objects of many tasks at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import obstore
import pytest

from deployments.contract.objects import ObjectStore

PLACES = ("inputs", "results", "others")
AT_A_TIME = 64


class Calls:
    """Counts the calls of the store. Listings end once `until` of them run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until: int = 1) -> None:
        self.listings = 0
        self.max_in_flight = 0
        self.deleted: list[int] = []
        self._in_flight = 0
        self._until = until
        self._enough = asyncio.Event()
        self._list, self._delete = obstore.list, obstore.delete_async
        monkeypatch.setattr(obstore, "list", self.list)
        monkeypatch.setattr(obstore, "delete_async", self.delete_async)

    async def list(self, store: Any, prefix: str, **options: Any) -> AsyncIterator[Any]:
        self.listings += 1
        self._in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._in_flight)
        if self._in_flight == self._until:
            self._enough.set()
        await self._enough.wait()
        async for batch in self._list(store, prefix=prefix, **options):
            yield batch
        self._in_flight -= 1

    async def delete_async(self, store: Any, paths: Sequence[str]) -> None:
        self.deleted.append(len(paths))
        await self._delete(store, paths)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return ObjectStore("memory:///" if request.param == "memory" else (tmp_path / "objects").as_uri())


async def fill(store: ObjectStore, tasks: int, objects: int) -> list[str]:
    """Stores objects below three prefixes per task. Returns the prefixes."""
    prefixes = [f"{place}/{n}" for n in range(tasks) for place in PLACES]
    for prefix in prefixes:
        for n in range(objects):
            await store.put(f"{prefix}/1/{n}.png", b"x", "image/png")
    return prefixes


async def test_folders_are_listed_concurrently_and_deleted_in_thousands(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = await fill(store, tasks=200, objects=2)
    await store.put("results/of another task/1/0.png", b"x", "image/png")
    calls = Calls(monkeypatch, until=AT_A_TIME)
    async with asyncio.timeout(60):
        await store.delete_prefixes([*prefixes, "results/nothing here"])
    assert calls.listings == len(prefixes) + 1
    assert calls.max_in_flight == AT_A_TIME
    assert calls.deleted == [1000, 200]
    assert await store.keys("") == ["results/of another task/1/0.png"]


def test_local_store_keeps_no_empty_folder(tmp_path: Path) -> None:
    async def delete() -> None:
        store = ObjectStore(tmp_path.as_uri())
        prefixes = await fill(store, tasks=2, objects=1)
        await store.delete_prefixes(prefixes[: len(PLACES)])

    asyncio.run(delete())
    remaining = [each.relative_to(tmp_path).as_posix() for each in tmp_path.glob("*/*")]
    assert sorted(remaining) == sorted(f"{place}/1" for place in PLACES)


async def test_missing_key_keeps_no_other(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    prefixes = await fill(store, tasks=1, objects=3)
    listed = store.keys

    async def outrun(prefix: str) -> list[str]:
        keys = await listed(prefix)
        await store.delete(keys[:1])
        return keys

    with monkeypatch.context() as patched:
        patched.setattr(store, "keys", outrun)
        await store.delete_prefixes(prefixes)
    assert await store.keys("") == []
