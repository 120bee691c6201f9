"""Checks of Redis and of the object store."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.cluster.checks.objects import check_objects, delete_shared_object, write_shared_object
from serve_app.cluster.checks.redis import check_clock, check_redis
from serve_app.cluster.checks.result import Verdict
from serve_app.config.settings import ObjectSettings, RedisSettings, Settings
from serve_app.launcher.embedded_redis import EmbeddedRedis, free_port


async def check_verdicts(url: str, replicas: int = 0) -> dict[str, Verdict]:
    settings = Settings(redis=RedisSettings(url=url, replicas=replicas))
    return {each.what: each.verdict for each in await check_redis(settings)}


async def test_embedded_server_is_fine(redis_url: str) -> None:
    verdicts = await check_verdicts(redis_url)
    verdicts.pop("latency of Redis")  # depends on the load of this machine
    assert set(verdicts.values()) == {Verdict.FINE}
    assert {"Redis", "persistence", "eviction", "clock"} <= set(verdicts)


async def test_server_without_persistence_is_refused(doomed_redis: EmbeddedRedis) -> None:
    async with Redis.from_url(doomed_redis.url) as client:
        await client.config_set("appendonly", "no")
        await client.config_set("maxmemory-policy", "allkeys-lru")
    verdicts = await check_verdicts(doomed_redis.url)
    assert (verdicts["persistence"], verdicts["eviction"]) == (Verdict.REFUSED, Verdict.REFUSED)


async def test_server_with_too_few_replicas_is_refused(redis_url: str) -> None:
    assert (await check_verdicts(redis_url, replicas=1))["replicas of Redis"] is Verdict.REFUSED


@pytest.mark.parametrize("options", [{"allow_http": "true"}, {"regoin": "us"}, {"region": 1}])
async def test_unknown_store_option_is_named(options: dict[str, Any]) -> None:
    settings = Settings(objects=ObjectSettings(url="s3://bucket", options=options))
    result = await check_objects(settings)
    assert (result.verdict, result.remedy) == (Verdict.REFUSED, "correct objects.options")
    assert f"one of the options {next(iter(options))} is unknown" in result.message


async def test_unreachable_server_is_refused_without_its_password() -> None:
    settings = Settings(redis=RedisSettings(url=f"redis://:secret@127.0.0.1:{free_port()}/0"))
    [result] = await check_redis(settings)
    assert (result.verdict, "secret" in result.message) == (Verdict.REFUSED, False)


@pytest.mark.parametrize(("skew_s", "verdict"), [(1.0, Verdict.FINE), (-5.0, Verdict.WARNING), (40.0, Verdict.REFUSED)])
def test_clock_difference_decides_the_verdict(skew_s: float, verdict: Verdict) -> None:
    result = check_clock(skew_s)
    assert result.verdict is verdict
    assert ("behind" in result.message) == (skew_s > 2)


def at(folder: Path) -> Settings:
    return Settings(objects=ObjectSettings(url=folder.as_uri()))


async def test_shared_store_is_fine_and_left_empty(tmp_path: Path) -> None:
    settings = at(tmp_path)
    marker = await write_shared_object(settings)
    assert marker is not None
    result = await check_objects(settings, marker)
    assert result.verdict is Verdict.FINE
    await delete_shared_object(settings, marker)
    assert await ObjectStore(tmp_path.as_uri()).keys("") == []


async def test_folder_of_one_node_is_refused(tmp_path: Path) -> None:
    marker = await write_shared_object(at(tmp_path / "one"))
    result = await check_objects(at(tmp_path / "other"), marker)
    assert (result.verdict, "another node wrote" in result.message) == (Verdict.REFUSED, True)


async def test_unreachable_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = await check_objects(at(tmp_path / "file"))
    assert (result.verdict, result.message.startswith("opening it failed")) == (Verdict.REFUSED, True)
    assert await write_shared_object(at(tmp_path / "file")) is None


@pytest.fixture
async def set_rules(redis: Redis, redis_url: str) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Creates a Redis user with ACL rules. Returns its URL."""

    async def create(rules: str) -> str:
        await redis.execute_command("ACL", "SETUSER", "app", "reset", "on", ">p@ss/#", *rules.split())
        return re.sub("//.*@", "//app:p%40ss%2F%23@", redis_url)

    yield create
    await redis.execute_command("ACL", "DELUSER", "app")


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ("~* resetchannels +@all", "channel"),
        ("~* &* +@all -@dangerous", "info"),
        ("~other:* &* +@all", "key"),
        ("~* &* +@all -publish -subscribe", "subscribe"),
        ("~* &* +@all -zpopmin", "zpopmin"),
    ],
)
async def test_missing_permissions_are_named(
    set_rules: Callable[[str], Awaitable[str]], rules: str, missing: str
) -> None:
    [result] = await check_redis(Settings(redis=RedisSettings(url=await set_rules(rules))))
    assert (result.verdict, missing in result.message) == (Verdict.REFUSED, True), result
    assert "ACL SETUSER" in result.remedy or "log" in result.remedy


async def test_recommended_redis_user_is_fine(set_rules: Callable[[str], Awaitable[str]]) -> None:
    verdicts = await check_verdicts(await set_rules("~gen:* &gen:* +@all -@dangerous +info"))
    assert Verdict.REFUSED not in verdicts.values()
