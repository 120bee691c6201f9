"""An LRU cache bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters of a cache, and the bytes that it holds now."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    bytes: int = 0


class ByteCache(Generic[K, V]):
    """Thread-safe. Evicted values live on while they are in use."""

    def __init__(self, limit: int, size: Callable[[V], int], *, min_entries: int = 0) -> None:
        """Keeps values of `limit` bytes by `size`, and the latest `min_entries` whatever their size."""
        self._limit = limit
        self._min_entries = min_entries
        self._size = size
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._hits = self._misses = self._evictions = self._bytes = 0
        self._lock = Lock()

    @property
    def keys(self) -> list[K]:
        """Keys, the least recently used one first."""
        with self._lock:
            return list(self._entries)

    @property
    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(self._hits, self._misses, self._evictions, self._bytes)

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._entries:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: K, value: V) -> V:
        """Returns the value under `key`, which another thread may have put. Stores no value above the limit
        unless there are `min_entries`."""
        size = self._size(value)
        with self._lock:
            if key in self._entries:
                return self._entries[key][0]
            if size <= self._limit or self._min_entries:
                self._entries[key] = value, size
                self._bytes += size
            while self._bytes > self._limit and len(self._entries) > self._min_entries:
                _, (_, evicted_bytes) = self._entries.popitem(last=False)
                self._bytes -= evicted_bytes
                self._evictions += 1
            return value

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def get_or_create(self, key: K, make: Callable[[], V]) -> V:
        """Returns the stored value, or that of `make`. Raises any error of `make` and stores nothing then."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value
