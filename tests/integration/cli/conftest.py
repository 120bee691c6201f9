"""Commands on a service that runs nowhere: its Redis is all that they need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis import Redis
from support.command_line import GenServe, Holder, write_config

from serve_app.accounts.callers import Caller, Callers
from serve_app.redis_store import connection


@pytest.fixture
def gen_serve(
    redis_url: str,
    prefix: str,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> GenServe:
    return GenServe(write_config(tmp_path, repository, redis_url, prefix), monkeypatch, capsys)


@pytest.fixture
def acme(gen_serve: GenServe) -> str:
    """An organization with 100 credits and the project `shop`."""
    for words in (
        ("organizations", "create", "acme", "--name", "Acme Inc."),
        ("credits", "grant", "100", "--organization", "acme", "--note", "start"),
        ("projects", "create", "shop", "--organization", "acme"),
    ):
        assert gen_serve(*words).code == 0
    return "acme"


@pytest.fixture
def kept(redis_url: str, prefix: str) -> Iterator[Callable[[], dict[bytes, bytes]]]:
    """Everything that the service keeps, on every call."""
    client = Redis.from_url(redis_url)

    def read() -> dict[bytes, bytes]:
        found: Any = client.scan_iter(f"{prefix}*", count=10_000)
        return {key: cast(bytes, client.dump(key)) for key in found}

    yield read
    client.close()


@pytest.fixture
def holder(redis_url: str, prefix: str) -> Holder:
    async def look_up(secret: str) -> Caller | None:
        client = connection.connect(redis_url)
        try:
            return await Callers(client, prefix).authenticate(secret)
        finally:
            await client.aclose()

    return lambda secret: asyncio.run(look_up(secret))
