"""Which keys of Redis are written meanwhile, as Redis itself tells it.

Comparing all keys before and after would take longer with every test of the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis


@contextmanager
def written(url: str, prefix: str) -> Iterator[set[str]]:
    """Has in the end the names behind `prefix` of the keys that something was done to, but for their expiry."""
    keys = set[str]()
    with Redis.from_url(url) as redis, redis.pubsub() as events:
        redis.config_set("notify-keyspace-events", "KA")
        events.psubscribe(f"__keyspace@*__:{prefix}*")
        _heard_until(events, "psubscribe")
        yield keys
        events.ping()  # Redis answers behind all that it has to tell
        for message in _heard_until(events, "pong"):
            if message["data"] not in (b"end_overdue", b"expired"):
                keys.add(message["channel"].decode().partition(f"__:{prefix}")[2])


def _heard_until(events: Any, last: str) -> list[dict[str, Any]]:
    """Messages before the one of type `last`."""
    heard = []
    for message in events.listen():
        if message["type"] == last:
            break
        heard.append(message)
    return heard
