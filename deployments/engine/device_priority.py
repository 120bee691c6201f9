"""Who goes first where several models share a device.

Each model is a process of its own, so they meet at a lock on a file: those that go first hold it, together, as long as
they have work; those that go last take no step meanwhile. The kernel frees the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
import weakref
from pathlib import Path
from typing import Protocol

from deployments.contract.model import Sharing

_LOOK_EVERY_S = 0.01


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
        self._lock = _opened(self, file)
        self._claimed = False

    def announce(self, working: bool) -> None:
        if working and not self._claimed:
            # One that goes last holds the lock for an instant. Nobody waits for it: should its process be frozen just
            # then, work goes on. The claim is made when this is said again.
            self._claimed = _taken(self._lock, fcntl.LOCK_SH)
        elif self._claimed and not working:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._claimed = False

    def wait(self) -> None: ...


class LowPriority:
    def __init__(self, file: Path, patience_s: float) -> None:
        self._lock = _opened(self, file)
        self._patience_s = patience_s

    def announce(self, working: bool) -> None: ...

    def wait(self) -> None:
        """Not for ever: after `patience_s` a step is taken all the same, so that nobody starves."""
        give_up = time.monotonic() + self._patience_s
        while not self._free() and time.monotonic() < give_up:
            time.sleep(_LOOK_EVERY_S)

    def _free(self) -> bool:
        free = _taken(self._lock, fcntl.LOCK_EX)
        if free:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        return free


def priority_on(sharing: Sharing | None, folder: Path | None = None) -> DevicePriority:
    """The lock lies in `folder`, the system's for temporary files if none is given."""
    if sharing is None:
        return Unshared()
    file = (folder or Path(tempfile.gettempdir())) / f"gen-{os.getuid()}-{sharing.device}.lock"
    return HighPriority(file) if sharing.goes == "first" else LowPriority(file, sharing.patience_s)


def _opened(owner: object, file: Path) -> int:
    """A descriptor that lives as long as its owner, and its locks with it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    weakref.finalize(owner, os.close, descriptor)
    return descriptor


def _taken(lock: int, how: int) -> bool:
    """False when another process is in the way."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
