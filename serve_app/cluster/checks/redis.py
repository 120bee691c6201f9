"""Checks of the task store: version, persistence, permissions, latency, clock."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from serve_app.accounts.names import find_clashes
from serve_app.cluster.checks.result import CheckResult
from serve_app.config.settings import RedisSettings, Settings
from serve_app.storage import connection
from serve_app.storage.refusals import MissingPermissions, check_permissions, describe_store_problem

_REDIS: Final = "Redis"
_MIN_VERSION: Final = (7, 0)
_PINGS: Final = 5
_SLOW_S: Final = 0.02
_CLOCK_WARNING_S: Final = 2.0
_CLOCK_REFUSED_S: Final = 30.0
"""Clock difference that invalidates links, tokens and webhook signatures."""


async def check_redis(settings: Settings) -> list[CheckResult]:
    """Checks the store from this process. A server that does not answer within a second counts as unreachable."""
    try:
        redis = connection.connect(settings.redis_url, retries=0, timeout_s=1.0, answer_s=2.0)
    except ValueError as problem:
        return [CheckResult.refused(_REDIS, str(problem), "set GEN_REDIS__URL as docs/settings.md says")]
    prefix = settings.redis.prefix
    try:
        await check_permissions(redis, prefix)
        info = await redis.info("all")
        results = [check(info, settings.redis) for check in SERVER_CHECKS]
        results += [*await _check_timing(redis), *map(_name_clash, await find_clashes(redis, prefix))]
    except MissingPermissions as problem:
        return [CheckResult.refused(_REDIS, problem.problem, problem.remedy)]
    except RedisError as problem:
        reason = describe_store_problem(problem)
        remedy = "see the server's log" if reason else "correct redis.url, and let every node reach the server"
        first_line = str(problem).partition("\n")[0] or type(problem).__name__
        return [CheckResult.refused(_REDIS, f"{reason or 'out of reach'}: {first_line}", remedy)]
    finally:
        await redis.aclose()
    return [each for each in results if each is not None]


def _check_version(info: Mapping[str, Any], _: RedisSettings) -> CheckResult:
    version = str(info.get("valkey_version") or info.get("redis_version") or "0")
    name = "Valkey" if "valkey_version" in info else "Redis"
    number = re.match(r"(\d+)\.(\d+)", version)
    if number is None or (int(number[1]), int(number[2])) < _MIN_VERSION:
        return CheckResult.refused(_REDIS, f"{name} {version}", "use Redis 7.0 or later, or Valkey")
    return CheckResult.fine(_REDIS, f"{name} {version}")


def _check_persistence(info: Mapping[str, Any], _: RedisSettings) -> CheckResult:
    if not int(info.get("aof_enabled", 0)):
        message = "appendonly is off: a restart would lose accepted tasks"
        return CheckResult.refused("persistence", message, "set appendonly yes")
    return CheckResult.fine("persistence", "appendonly")


def _check_eviction(info: Mapping[str, Any], _: RedisSettings) -> CheckResult:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        message = f"{policy}: a full server would drop tasks"
        return CheckResult.refused("eviction", message, "set maxmemory-policy noeviction")
    return CheckResult.fine("eviction", "noeviction")


def _check_cluster_mode(info: Mapping[str, Any], settings: RedisSettings) -> CheckResult | None:
    prefix = settings.prefix
    if not int(info.get("cluster_enabled", 0)) or re.search(r"\{[^}]+\}", prefix):
        return None
    message = f"redis.prefix {prefix} has no hash tag"
    return CheckResult.refused("cluster mode", message, f"set redis.prefix: '{{{prefix.strip(':')}}}:'")


def _check_replicas(info: Mapping[str, Any], settings: RedisSettings) -> CheckResult | None:
    connected = int(info.get("connected_slaves", 0))
    if connected >= settings.replicas:
        return None
    message = f"{connected}, and redis.replicas is {settings.replicas}: nothing would be accepted"
    return CheckResult.refused("replicas of Redis", message, "connect them, or lower redis.replicas")


SERVER_CHECKS: Final = (_check_version, _check_persistence, _check_eviction, _check_cluster_mode, _check_replicas)


async def _check_timing(redis: Redis) -> list[CheckResult]:
    latencies, skews = [], []
    for _ in range(_PINGS):
        started_at, sent_at = time.perf_counter(), time.time()
        seconds, micros = await redis.time()
        latencies.append(time.perf_counter() - started_at)
        # The server's time is compared with the middle of the call, so the error is at most half of the call.
        skews.append(int(seconds) + int(micros) / 1e6 - (sent_at + latencies[-1] / 2))
    return [check_latency(statistics.median(latencies)), check_clock(min(skews, key=abs))]


def check_latency(latency_s: float) -> CheckResult:
    what, limit = "latency of Redis", f"below {_SLOW_S * 1000:.0f} ms"
    if latency_s > _SLOW_S:
        return CheckResult.warning(what, f"{latency_s * 1000:.0f} ms", f"use a nearer or less busy server: {limit}")
    return CheckResult.fine(what, limit)


def check_clock(skew_s: float) -> CheckResult:
    """`skew_s` is the server's time minus that of this machine."""
    message = f"{abs(skew_s):.1f} s {'behind' if skew_s > 0 else 'ahead of'} Redis' clock"
    if abs(skew_s) > _CLOCK_REFUSED_S:
        return CheckResult.refused("clock", message, "set clocks by NTP")
    if abs(skew_s) > _CLOCK_WARNING_S:
        return CheckResult.warning("clock", message, "set clocks by NTP")
    return CheckResult.fine("clock", f"within {_CLOCK_WARNING_S:g} s of Redis'")


def _name_clash(message: str) -> CheckResult:
    remedy = "another member has this name in other letters: gen-serve members set NAME ROLE makes them one"
    return CheckResult.warning("members", message, remedy)
