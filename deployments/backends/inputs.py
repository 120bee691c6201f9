"""Fetcher of input objects for backends."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from obstore.exceptions import BaseError

from deployments.backend import JobError, Unavailable
from deployments.contract.objects import ObjectStore

_FETCHERS = 32
"""Objects fetched at a time, for all jobs. A remote store is slow but parallel, and an object that stalls must not hold
up other jobs."""


class InputFetcher:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(_FETCHERS, thread_name_prefix="inputs")

    def fetch_all(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Returns the bytes of each object by key. Raises JobError for one that is gone, Unavailable."""
        unique = sorted(set(keys))
        return dict(zip(unique, self._threads.map(self._get, unique), strict=True))

    def _get(self, key: str) -> bytes:
        try:
            return self._store.get_blocking(key)
        except FileNotFoundError:
            raise JobError("an input is no longer available") from None
        except (BaseError, OSError) as error:
            raise Unavailable(str(error)) from error
