"""The cache of values by their bytes."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from deployments.lru_cache import ByteCache, CacheStats


def make_cache(limit: int) -> ByteCache[str, bytes]:
    return ByteCache(limit, len)


def test_least_recently_used_value_is_evicted_first() -> None:
    cache = make_cache(10)
    for name in "abc":
        cache.put(name, b"xxx")
    assert cache.get("a") == b"xxx"
    cache.put("d", b"xxxx")
    assert cache.keys == ["c", "a", "d"]
    assert cache.stats == CacheStats(hits=1, misses=0, evictions=1, bytes=10)


def test_latest_entry_may_exceed_the_limit() -> None:
    cache: ByteCache[str, bytes] = ByteCache(3, len, min_entries=1)
    for name in ("a", "b"):
        cache.put(name, b"xxxx")
    assert cache.keys == ["b"]
    cache.put("c", b"x")
    assert cache.keys == ["c"], "both exceed the limit"


def test_value_above_the_limit_is_not_kept_and_evicts_nothing() -> None:
    cache, none = make_cache(3), make_cache(0)
    cache.put("a", b"xxx")
    assert cache.put("b", b"xxxx") == b"xxxx"
    assert cache.keys == ["a"]
    assert [none.get_or_create("a", lambda: b"x") for _ in range(2)] == [b"x", b"x"]
    assert none.stats == CacheStats(misses=2)


def test_clearing_frees_the_memory() -> None:
    cache = make_cache(10)
    value = cache.put("a", b"xxx")
    cache.clear()
    assert cache.get("a") is None
    assert cache.stats.bytes == 0
    assert cache.get_or_create("a", lambda: b"y") is not value


def test_value_is_created_once() -> None:
    cache, values = make_cache(10), list[str]()

    def make() -> bytes:
        values.append("once")
        return b"x"

    assert cache.get_or_create("a", make) is cache.get_or_create("a", make)
    assert values == ["once"]
    assert cache.stats == CacheStats(hits=1, misses=1, bytes=1)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_create("b", lambda: bytes(1 // 0))
    assert cache.get_or_create("b", lambda: b"x") == b"x", "a failed creation is repeated"


def test_threads_get_one_value() -> None:
    cache, together, results = make_cache(10), Barrier(4), list[bytes]()

    def make() -> bytes:
        together.wait(60)
        return bytes(bytearray(3))

    threads = [Thread(target=lambda: results.append(cache.get_or_create("a", make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(results) == 4
    assert len({id(one) for one in results}) == 1
    assert cache.stats.bytes == 3
