"""Log levels that operators set on a running service, in its processes and models."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis
from support.jobs import make_job

from deployments.contract.model import ModelSpec
from deployments.replica import MediaModel
from deployments.telemetry import logs
from serve_app.background import BackgroundTasks
from serve_app.storage import log_levels
from serve_app.storage.log_levels import LogLevels

MODULE, OTHER = "serve_app.dispatcher", "serve_app.webhooks"


@pytest.fixture(autouse=True)
def _restore_levels() -> Iterator[None]:
    names = (*logs.OWN, MODULE, OTHER, "deployments.engine")
    before = {name: (logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names}
    yield
    logs.set_levels({})
    for name, (level, handlers) in before.items():
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).handlers[:] = handlers


@pytest.fixture
async def following(redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LogLevels]:
    """Starts the levels of a process whose settings name a level for one module."""
    monkeypatch.setattr(log_levels, "_POLL_INTERVAL_S", 0.01)
    levels = LogLevels(redis, prefix, {OTHER: "error"})
    logs.set_levels({OTHER: "error"})
    loops = BackgroundTasks({"log levels": levels.follow})
    yield levels
    await loops.stop()


async def wait_for_level(name: str, level: int) -> None:
    async with asyncio.timeout(60):
        while logging.getLogger(name).level != level:
            await asyncio.sleep(0.01)


async def test_process_follows_the_latest_level(following: LogLevels, redis: Redis, prefix: str) -> None:
    operator = LogLevels(redis, prefix)
    await operator.set(MODULE, "debug")
    await operator.set(OTHER, "info")
    await wait_for_level(MODULE, logging.DEBUG)
    await wait_for_level(OTHER, logging.INFO)
    assert following.levels == ((MODULE, "debug"), (OTHER, "info"))
    for module, level in (("redis", "debug"), (MODULE, "loud"), ("redis", None)):
        with pytest.raises(ValueError, match=r"redis|loud"):
            await operator.set(module, level)
    await operator.set(MODULE, None)
    await operator.set(OTHER, None)
    await wait_for_level(MODULE, logging.NOTSET)
    await wait_for_level(OTHER, logging.ERROR)
    assert following.levels == ()


async def test_model_learns_levels_from_its_next_job() -> None:
    media = MediaModel.__new__(MediaModel)
    await MediaModel.__init__(media, ModelSpec(checkpoint="simulated/1ms", objects_url="memory:///"))
    engine = logging.getLogger("deployments.engine")
    try:
        for levels, level in (((("deployments.engine", "debug"),), logging.DEBUG), ((), logging.NOTSET)):
            job = dataclasses.replace(make_job("a"), log_levels=levels)
            assert [event async for event in media.generate(job)]
            assert engine.level == level
    finally:
        media._engine.stop()
