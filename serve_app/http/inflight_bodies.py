"""How much of all requests' bodies a process holds at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class NoRoom(Exception):
    """There is no room for this body beside those of other requests."""


class InflightBodies:
    """Counts the bytes of large bodies, and of what requests fetch, from their beginning to the end of the answer."""

    def __init__(self, max_bytes: int, small_bytes: int) -> None:
        """Bodies of up to `small_bytes` always have room and are not counted: large ones can't keep them out."""
        self._max_bytes = max_bytes
        self._small_bytes = small_bytes
        self._held = 0

    @contextmanager
    def one_more(self) -> Iterator[InflightBody]:
        """The body of a request; what was counted of it is free again at the end."""
        body = InflightBody(self)
        try:
            yield body
        finally:
            self._held -= body.counted

    def grow(self, counted: int, size: int) -> int:
        """How much is counted of a body that is `size` bytes large now. Raises NoRoom."""
        if size <= max(counted, self._small_bytes):
            return counted
        if self._held + size - counted > self._max_bytes:
            raise NoRoom
        self._held += size - counted
        return size


class InflightBody:
    def __init__(self, bodies: InflightBodies) -> None:
        self._bodies = bodies
        self._size = 0
        self.counted = 0

    def grow_to(self, size: int) -> None:
        """Notes that the body is, or will be, at least `size` bytes large. Raises NoRoom; then nothing changes."""
        self.counted = self._bodies.grow(self.counted, size)

    def add(self, size: int) -> None:
        """Notes `size` further bytes. Raises NoRoom."""
        self._size += size
        self.grow_to(self._size)
