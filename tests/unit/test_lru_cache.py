from __future__ import annotations

from threading import Barrier, Thread

import pytest

from deployments.lru_cache import ByteCache, CacheStats


def a_cache(limit: int) -> ByteCache[str, bytes]:
    return ByteCache(limit, len)


def test_the_one_unused_for_longest_leaves_when_bytes_run_out() -> None:
    cache = a_cache(10)
    for name in "abc":
        cache.put(name, b"xxx")
    assert cache.get("a") == b"xxx"
    cache.put("d", b"xxxx")
    assert cache.keys == ["c", "a", "d"]
    assert cache.stats == CacheStats(hits=1, misses=0, evictions=1, bytes=10)


def test_the_latest_may_be_kept_however_large_they_are() -> None:
    cache: ByteCache[str, bytes] = ByteCache(3, len, min_entries=1)
    for name in ("a", "b"):
        cache.put(name, b"xxxx")
    assert cache.keys == ["b"]
    cache.put("c", b"x")
    assert cache.keys == ["c"], "together they have no room"


def test_what_would_not_fit_alone_is_not_kept_and_drives_nobody_out() -> None:
    cache, none = a_cache(3), a_cache(0)
    cache.put("a", b"xxx")
    assert cache.put("b", b"xxxx") == b"xxxx"
    assert cache.keys == ["a"]
    assert [none.get_or_create("a", lambda: b"x") for _ in range(2)] == [b"x", b"x"]
    assert none.stats == CacheStats(misses=2)


def test_who_needs_the_memory_gets_it() -> None:
    cache = a_cache(10)
    value = cache.put("a", b"xxx")
    cache.clear()
    assert cache.get("a") is None
    assert cache.stats.bytes == 0
    assert cache.get_or_create("a", lambda: b"y") is not value


def test_what_is_kept_is_not_made_again() -> None:
    cache, values = a_cache(10), list[str]()

    def make() -> bytes:
        values.append("once")
        return b"x"

    assert cache.get_or_create("a", make) is cache.get_or_create("a", make)
    assert values == ["once"]
    assert cache.stats == CacheStats(hits=1, misses=1, bytes=1)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_create("b", lambda: bytes(1 // 0))
    assert cache.get_or_create("b", lambda: b"x") == b"x", "what could not be made is tried again"


def test_threads_that_make_the_same_get_the_same() -> None:
    cache, together, results = a_cache(10), Barrier(4), list[bytes]()

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
