"""Sharing of a device: priority between models, exclusive sections, and threads for work beside the steps.

Each model is a process of its own, so they meet at a lock on a file: those that go first hold it, together, as long as
they have work; those that go last take no step meanwhile. The kernel frees the lock of a process that dies.
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

_LOOK_EVERY_S = 0.01

T = TypeVar("T")


class DevicePriority(Protocol):
    """The engine's loop thread calls these, and no other."""

    def announce(self, working: bool) -> None:
        """Whether there is work: said again and again."""
        ...

    def wait(self) -> None:
        """Returns when a step may be taken."""
        ...


class Unshared:
    """Nobody is asked, nobody is told."""

    def announce(self, working: bool) -> None: ...
    def wait(self) -> None: ...


class HighPriority:
    def __init__(self, file: Path) -> None:
        self._lock = _open_lock_file(self, file)
        self._claimed = False

    def announce(self, working: bool) -> None:
        if working and not self._claimed:
            # One that goes last holds the lock for an instant. Nobody waits for it: should its process be frozen just
            # then, work goes on. The claim is made when this is said again.
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
        """Not for ever: after `max_wait_s` a step is taken all the same, so that nobody starves."""
        give_up = time.monotonic() + self._max_wait_s
        while not self._free() and time.monotonic() < give_up:
            time.sleep(_LOOK_EVERY_S)

    def _free(self) -> bool:
        free = _try_lock(self._lock, fcntl.LOCK_EX)
        if free:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        return free


def priority_on(sharing: Sharing | None, folder: Path | None = None) -> DevicePriority:
    """The lock lies in `folder`, the system's for temporary files if none is given."""
    if sharing is None:
        return Unshared()
    file = (folder or Path(tempfile.gettempdir())) / f"gen-{os.getuid()}-{sharing.device}.lock"
    return HighPriority(file) if sharing.priority == "high" else LowPriority(file, sharing.max_wait_s)


def _open_lock_file(owner: object, file: Path) -> int:
    """A descriptor that lives as long as its owner, and its locks with it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    weakref.finalize(owner, os.close, descriptor)
    return descriptor


def _try_lock(lock: int, how: int) -> bool:
    """False when another process is in the way."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class DeviceGate:
    """Who waits to be alone goes before what comes next, so that a stream of steps, or of other work, can't keep it
    out."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._stepping = False
        self._solitary = False
        """A step waits for the device alone, or has it."""
        self._accompanied = False
        """Whether other work ran beside the step at any time."""
        self._beside = 0
        self._alone = 0

    @contextmanager
    def step(self, *, alone: bool = False) -> Iterator[Callable[[], bool]]:
        """Within it a step runs, `alone` without any other work; one thread takes steps. Gives whether there was some
        beside it so far."""
        with self._condition:
            self._solitary = alone
            self._condition.wait_for(lambda: not self._alone and not (alone and self._beside))
            self._stepping, self._accompanied = True, self._beside > 0
        try:
            yield lambda: self._accompanied
        finally:
            with self._condition:
                self._stepping = self._solitary = False
                self._condition.notify_all()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Within it work runs that steps may run beside."""
        with self._condition:
            self._condition.wait_for(lambda: not self._solitary)
            self._beside += 1
            self._accompanied = True
        try:
            yield
        finally:
            with self._condition:
                self._beside -= 1
                self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within it no step runs."""
        with self._condition:
            self._alone += 1
            self._condition.wait_for(lambda: not self._stepping)
        try:
            yield
        finally:
            with self._condition:
                self._alone -= 1
                self._condition.notify_all()

    def run(self, call: Callable[[], T], *, retry: bool = True) -> T:
        """Runs `call` beside steps. One that runs out of memory runs once more with no step beside it, if `retry`."""
        try:
            with self.beside():
                return call()
        except OutOfMemory:
            if not retry:
                raise
        with self.alone():
            return call()


class IoPool:
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
