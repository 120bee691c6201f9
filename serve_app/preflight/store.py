"""Whether a Redis keeps what it is given: asked with `INFO` alone, which managed ones allow, too."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from redis.exceptions import RedisError

from serve_app.config.settings import Settings
from serve_app.preflight.finding import Finding, fine, refused, unusual
from serve_app.redis_store import connection

_OLDEST: Final = (7, 0)
_ROUNDS: Final = 5
_SLOW_S: Final = 0.02
_SKEWED_S: Final = 2.0
_WRONG_CLOCK_S: Final = 30.0
"""Links, tokens and webhooks' signatures are judged by the clocks of nodes."""
_WHAT: Final = "Redis"


async def look(settings: Settings, where: str) -> list[Finding]:
    """From this process. An address that does not answer within a second counts as out of reach."""
    try:
        redis = connection.connect(settings.redis_url, retries=0, timeout_s=1.0, answer_s=2.0)
    except ValueError as problem:
        return [refused(_WHAT, where, str(problem), "GEN_REDIS__URL, as docs/settings.md has it")]
    try:
        return [*_kept(await redis.info("all"), settings, where), *await _timed(redis, where)]
    except RedisError as problem:
        mend = "redis.url has to be right, and the server reachable from every node"
        return [refused(_WHAT, where, f"out of reach: {_first_line(problem)}", mend)]
    finally:
        await redis.aclose()


def _kept(info: Mapping[str, Any], settings: Settings, where: str) -> Iterator[Finding]:
    told = str(info.get("valkey_version") or info.get("redis_version") or "0")
    name = "Valkey" if "valkey_version" in info else "Redis"
    number = re.match(r"(\d+)\.(\d+)", told)
    if number is None or (int(number[1]), int(number[2])) < _OLDEST:
        yield refused(_WHAT, where, f"{name} {told}", "Redis 7.0 or later, or Valkey")
    else:
        yield fine(_WHAT, where, f"{name} {told}")
    if not int(info.get("aof_enabled", 0)):
        yield refused("persistence", where, "appendonly is off: a restart would lose accepted tasks", "appendonly yes")
    else:
        yield fine("persistence", where, "appendonly")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield refused("eviction", where, f"{policy}: a full server would drop tasks", "maxmemory-policy noeviction")
    else:
        yield fine("eviction", where, "noeviction")
    prefix = settings.redis.prefix
    if int(info.get("cluster_enabled", 0)) and not re.search(r"\{[^}]+\}", prefix):
        yield refused(
            "cluster mode", where, f"redis.prefix {prefix} has no hash tag", f"redis.prefix: '{{{prefix.strip(':')}}}:'"
        )
    behind = int(info.get("connected_slaves", 0))
    if behind < settings.redis.replicas:
        yield refused(
            "replicas of Redis",
            where,
            f"{behind}, and redis.replicas is {settings.redis.replicas}: nothing would be accepted",
            "connect them, or lower redis.replicas",
        )


async def _timed(redis: Any, where: str) -> list[Finding]:
    """How long an answer takes, and how far this machine's clock is from the server's."""
    took, skews = [], []
    for _ in range(_ROUNDS):
        began, asked = time.perf_counter(), time.time()
        seconds, micros = await redis.time()
        took.append(time.perf_counter() - began)
        # Compared with the middle of the call: that is right to half of what it took.
        skews.append(int(seconds) + int(micros) / 1e6 - (asked + took[-1] / 2))
    delay, skew = statistics.median(took), min(skews, key=abs)
    slow = f"{delay * 1000:.0f} ms"
    latency = (
        unusual("latency of Redis", where, slow, f"nearer, or less busy: below {_SLOW_S * 1000:.0f} ms")
        if delay > _SLOW_S
        else fine("latency of Redis", where, f"below {_SLOW_S * 1000:.0f} ms")
    )
    return [latency, clock(skew, where)]


def clock(skew_s: float, where: str) -> Finding:
    """`skew_s` is how much later it is at the server."""
    told, mend = f"{abs(skew_s):.1f} s {'behind' if skew_s > 0 else 'ahead of'} Redis' clock", "set clocks by NTP"
    if abs(skew_s) > _WRONG_CLOCK_S:
        return refused("clock", where, told, mend)
    if abs(skew_s) > _SKEWED_S:
        return unusual("clock", where, told, mend)
    return fine("clock", where, f"within {_SKEWED_S:g} s of Redis'")


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0] or type(problem).__name__
