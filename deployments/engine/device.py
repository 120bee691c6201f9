"""Sharing of a device: priority between models, exclusive sections, and threads for work beside the steps.

Models that share a device run in separate processes and coordinate by a lock on a file. High-priority models hold it
together while they have work; low-priority models take no step meanwhile. The kernel frees the lock of a dead process.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from deployments.backend import OutOfMemory
from deployments.contract.model import Sharing

_POLL_S = 0.01

T = TypeVar("T")


class DevicePriority(Protocol):
    """Used from the engine's loop thread only."""

    def announce(self, working: bool) -> None:
        """Says whether there is work. Called repeatedly."""
        ...

    def wait(self) -> None:
        """Returns when a step may be taken."""
        ...


class NoSharing:
    """No-op: the device is not shared with other models."""

    def announce(self, working: bool) -> None: ...
    def wait(self) -> None: ...


class HighPriority:
    def __init__(self, file: Path) -> None:
        self._lock = _open_lock_file(self, file)
        self._claimed = False

    def announce(self, working: bool) -> None:
        if working and not self._claimed:
            # A low-priority model holds the lock for an instant. Not waited for, as its process may be frozen just
            # then: the next announcement claims the lock.
            self._claimed = _try_lock(self._lock, fcntl.LOCK_SH)
        elif self._claimed and not working:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._claimed = False

    def wait(self) -> None: ...


class LowPriority:
    def __init__(self, file: Path, max_wait_s: float) -> None:
        self._lock = _open_lock_file(self, file)
        self._max_wait_s = max_wait_s

    def announce(self, working: bool) -> None: ...

    def wait(self) -> None:
        """Returns when the device is free, or after `max_wait_s`, so that the model does not starve."""
        give_up_at = time.monotonic() + self._max_wait_s
        while not self._is_free() and time.monotonic() < give_up_at:
            time.sleep(_POLL_S)

    def _is_free(self) -> bool:
        is_free = _try_lock(self._lock, fcntl.LOCK_EX)
        if is_free:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        return is_free


def priority_on(sharing: Sharing | None, folder: Path | None = None) -> DevicePriority:
    """Returns the priority of this process. The lock is in `folder`, by default that for temporary files."""
    if sharing is None:
        return NoSharing()
    file = (folder or Path(tempfile.gettempdir())) / f"gen-{os.getuid()}-{sharing.device}.lock"
    return HighPriority(file) if sharing.priority == "high" else LowPriority(file, sharing.max_wait_s)


def _open_lock_file(owner: object, file: Path) -> int:
    """Returns a descriptor that lives as long as `owner`, and its locks with it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    weakref.finalize(owner, os.close, descriptor)
    return descriptor


def _try_lock(lock: int, how: int) -> bool:
    """Returns False if another process holds the lock."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class DeviceGate:
    """Lets steps run beside other work or alone. A waiting exclusive call goes before new calls, so that a stream of
    these can't starve it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._stepping = False
        self._exclusive_step = False
        """A step waits for the device alone, or has it."""
        self._overlapped = False
        """Other work ran during the step."""
        self._shared = 0
        self._exclusive = 0

    @contextmanager
    def step(self, *, exclusive: bool = False) -> Iterator[Callable[[], bool]]:
        """Runs a step, `exclusive` without any other work. Yields a function that tells whether other work has
        overlapped so far. Only one thread takes steps."""
        with self._condition:
            self._exclusive_step = exclusive
            self._condition.wait_for(lambda: not self._exclusive and not (exclusive and self._shared))
            self._stepping, self._overlapped = True, self._shared > 0
        try:
            yield lambda: self._overlapped
        finally:
            with self._condition:
                self._stepping = self._exclusive_step = False
                self._condition.notify_all()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Runs work that may overlap with steps."""
        with self._condition:
            self._condition.wait_for(lambda: not self._exclusive_step)
            self._shared += 1
            self._overlapped = True
        try:
            yield
        finally:
            with self._condition:
                self._shared -= 1
                self._condition.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Runs work during which no step runs."""
        with self._condition:
            self._exclusive += 1
            self._condition.wait_for(lambda: not self._stepping)
        try:
            yield
        finally:
            with self._condition:
                self._exclusive -= 1
                self._condition.notify_all()

    def run(self, call: Callable[[], T], *, retry: bool = True) -> T:
        """Runs `call` beside steps. With `retry`, a call that runs out of memory runs once more without a step."""
        try:
            with self.shared():
                return call()
        except OutOfMemory:
            if not retry:
                raise
        with self.exclusive():
            return call()


class IoPool:
    """Runs calls in a thread pool once started; before that at once, in the caller's thread. Calls must not raise."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="engine-waits")

    def run(self, call: Callable[[], None]) -> None:
        if self._pool is None:
            call()
            return
        with suppress(RuntimeError):  # the pool was stopped, and the result is not needed any more
            self._pool.submit(call)

    def stop(self) -> None:
        """Drops calls that wait for a thread; running ones continue."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
