"""What waits for others, so that nobody who computes has to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress


class Background:
    """Runs calls in a pool of threads once started; before that at once, in the caller's. Calls must not raise."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="engine-waits")

    def run(self, call: Callable[[], None]) -> None:
        if self._pool is None:
            call()
            return
        with suppress(RuntimeError):  # stopped meanwhile: nobody waits for it any more
            self._pool.submit(call)

    def stop(self) -> None:
        """Calls that run go on; those that wait for a thread are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
