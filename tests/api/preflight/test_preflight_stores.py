"""What is said of a Redis and of an object store: of one that keeps what it is given, and of others."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from deployments.contract.objects import ObjectStore
from serve_app.cluster.finding import Verdict
from serve_app.cluster.preflight import (
    check_clock,
    check_objects,
    check_redis,
    delete_shared_object,
    write_shared_object,
)
from serve_app.config.settings import ObjectSettings, RedisSettings, Settings
from serve_app.launcher.embedded_redis import EmbeddedRedis, free_port


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[str]:
    server = EmbeddedRedis(tmp_path / "forgetful", durable=False)
    server.start()
    yield server.url
    server.stop()


async def check_verdicts(url: str, replicas: int = 0) -> dict[str, Verdict]:
    settings = Settings(redis=RedisSettings(url=url, replicas=replicas))
    return {each.what: each.verdict for each in await check_redis(settings, "here")}


async def test_the_embedded_one_is_fit(redis_url: str) -> None:
    verdicts = await check_verdicts(redis_url)
    verdicts.pop("latency of Redis")  # is what it is on a busy machine
    assert set(verdicts.values()) == {Verdict.FINE}
    assert {"Redis", "persistence", "eviction", "clock"} <= set(verdicts)


async def test_one_that_forgets_is_refused(forgetful: str) -> None:
    client = Redis.from_url(forgetful)
    await client.config_set("maxmemory-policy", "allkeys-lru")
    await client.aclose()
    verdicts = await check_verdicts(forgetful)
    assert (verdicts["persistence"], verdicts["eviction"]) == (Verdict.REFUSED, Verdict.REFUSED)


async def test_one_without_the_replicas_that_have_to_confirm_is_refused(redis_url: str) -> None:
    assert (await check_verdicts(redis_url, replicas=1))["replicas of Redis"] is Verdict.REFUSED


@pytest.mark.parametrize("options", [{"allow_http": "true"}, {"regoin": "us"}, {"region": 1}])
async def test_options_that_no_store_takes_are_named(options: dict[str, Any]) -> None:
    settings = Settings(objects=ObjectSettings(url="s3://bucket", options=options))
    [finding] = await check_objects(settings, "here")
    assert (finding.verdict, finding.remedy) == (Verdict.REFUSED, "correct objects.options")
    assert f"one of the options {next(iter(options))} is unknown" in finding.message


async def test_one_that_is_not_there_is_refused_without_its_password() -> None:
    settings = Settings(redis=RedisSettings(url=f"redis://:secret@127.0.0.1:{free_port()}/0"))
    [finding] = await check_redis(settings, "here")
    assert (finding.verdict, "secret" in finding.message) == (Verdict.REFUSED, False)


@pytest.mark.parametrize(("skew_s", "verdict"), [(1.0, Verdict.FINE), (-5.0, Verdict.WARNING), (40.0, Verdict.REFUSED)])
def test_clocks_are_compared(skew_s: float, verdict: Verdict) -> None:
    finding = check_clock(skew_s, "here")
    assert finding.verdict is verdict
    assert ("behind" in finding.message) == (skew_s > 2)


def at(folder: Path) -> Settings:
    return Settings(objects=ObjectSettings(url=folder.as_uri()))


async def test_one_that_all_see_is_fit_and_left_as_it_was(tmp_path: Path) -> None:
    settings = at(tmp_path)
    marker = await write_shared_object(settings)
    assert marker is not None
    [finding] = await check_objects(settings, "here", marker)
    assert finding.verdict is Verdict.FINE
    await delete_shared_object(settings, marker)
    assert await ObjectStore(tmp_path.as_uri()).keys("") == []


async def test_a_folder_of_each_nodes_own_is_refused(tmp_path: Path) -> None:
    marker = await write_shared_object(at(tmp_path / "one"))
    [finding] = await check_objects(at(tmp_path / "other"), "here", marker)
    assert (finding.verdict, "another node wrote" in finding.message) == (Verdict.REFUSED, True)


async def test_one_that_is_out_of_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    [finding] = await check_objects(at(tmp_path / "file"), "here")
    assert (finding.verdict, finding.message.startswith("opening it failed")) == (Verdict.REFUSED, True)
    assert await write_shared_object(at(tmp_path / "file")) is None


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
async def test_missing_permissions_of_its_user_are_named(redis_url: str, rules: str, missing: str) -> None:
    administrator = Redis.from_url(redis_url)
    await administrator.execute_command("ACL", "SETUSER", "app", "reset", "on", ">p@ss/#", *rules.split())
    try:
        settings = Settings(redis=RedisSettings(url=re.sub("//.*@", "//app:p%40ss%2F%23@", redis_url)))
        [finding] = await check_redis(settings, "here")
    finally:
        await administrator.execute_command("ACL", "DELUSER", "app")
        await administrator.aclose()
    assert (finding.verdict, missing in finding.message) == (Verdict.REFUSED, True), finding
    assert "ACL SETUSER" in finding.remedy or "log" in finding.remedy


async def test_the_user_that_is_recommended_is_fit(redis_url: str) -> None:
    administrator = Redis.from_url(redis_url)
    rules = "~gen:* &gen:* +@all -@dangerous +info"
    await administrator.execute_command("ACL", "SETUSER", "app", "reset", "on", ">x", *rules.split())
    try:
        verdicts = await check_verdicts(re.sub("//.*@", "//app:x@", redis_url))
    finally:
        await administrator.execute_command("ACL", "DELUSER", "app")
        await administrator.aclose()
    assert Verdict.REFUSED not in verdicts.values()


async def test_up_names_missing_permissions_before_it_serves(redis_url: str, tmp_path: Path) -> None:
    administrator = Redis.from_url(redis_url)
    await administrator.execute_command("ACL", "SETUSER", "app", "reset", "on", ">x", "~gen:*", "+@all")
    try:
        environ = os.environ | {"GEN_REDIS__URL": re.sub("//.*@", "//app:x@", redis_url)}
        command = [Path(sys.executable).with_name("gen-serve"), "up", "--config", "configs/local.yaml"]
        environ |= {"GEN_SERVICE__PORT": str(free_port())}
        ended = await asyncio.to_thread(
            subprocess.run, command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
    finally:
        await administrator.execute_command("ACL", "DELUSER", "app")
        await administrator.aclose()
    assert ended.returncode == 2, ended.stderr
    assert "permissions to access a channel" in ended.stderr
    assert "ACL SETUSER" in ended.stderr
