"""The object server of a run is one to the service: obstore's own S3 client talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from obstore.exceptions import BaseError

from chaos.object_server import ObjectServer, serving
from deployments.contract.objects import ObjectStore

KEY = "results/a/1/picture.jpeg"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectServer]:
    with serving(tmp_path / "bucket") as server:
        yield server


@pytest.fixture
def store(server: ObjectServer) -> ObjectStore:
    return ObjectStore(**server.settings)


async def test_objects_are_kept_found_moved_and_deleted(server: ObjectServer, store: ObjectStore) -> None:
    await store.put(KEY, b"a picture", "image/jpeg")
    assert (server.folder / KEY).read_bytes() == await store.get(KEY) == b"a picture"
    await store.rename(KEY, "results/a/1/shown.jpeg")
    assert await store.keys("results/a") == ["results/a/1/shown.jpeg"]
    with pytest.raises(FileNotFoundError):
        await store.get(KEY)
    await store.put(KEY, b"another", "image/jpeg")
    await store.delete([KEY, "results/gone"])
    await store.delete_prefix("results/a")
    assert await store.keys("results") == []


async def test_its_links_open_without_credentials(store: ObjectStore) -> None:
    await store.put(KEY, b"a picture", "image/jpeg")
    link = await store.sign(KEY, timedelta(minutes=1))
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        assert (await http.get(link)).content == b"a picture"


async def test_a_dead_one_answers_nothing_and_has_all_when_it_is_back(server: ObjectServer, store: ObjectStore) -> None:
    await store.put(KEY, b"a picture", "image/jpeg")
    server.dead = True
    with pytest.raises(BaseError):
        await store.get(KEY)
    server.dead = False
    assert await store.get(KEY) == b"a picture"
