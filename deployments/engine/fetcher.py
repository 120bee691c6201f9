"""Gets what jobs need from elsewhere before they are admitted, so that a slow store holds up nobody else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic

from deployments.engine.backend import Backend, DeviceBroken, OutOfMemory, P, S
from deployments.engine.background import Background
from deployments.engine.exclusive import Exclusive
from deployments.engine.failures import NO_ROOM, fail
from deployments.engine.health import Health
from deployments.engine.request_table import RequestTable, WaitingRequest


class Fetcher(Generic[P, S]):
    def __init__(
        self,
        backend: Backend[P, S],
        requests: RequestTable[P, S],
        background: Background,
        health: Health,
        device: Exclusive,
        *,
        ahead: int,
        broken: Callable[[DeviceBroken], None],
    ) -> None:
        """Fetches for the first `ahead` that wait: what was fetched is in memory until it is encoded. Calls `broken`
        where the device is."""
        self._backend = backend
        self._requests = requests
        self._background = background
        self._health = health
        self._device = device
        self._broken = broken
        self._ahead = ahead

    def work(self) -> bool:
        found = self._requests.to_fetch(self._ahead)
        for request in found:
            self._background.run(partial(self._fetch, request))
        return bool(found)

    def _fetch(self, request: WaitingRequest[P]) -> None:
        if request.handle.ended:
            return
        try:
            prepared = self._fetched(request)
        except DeviceBroken as error:
            self._broken(error)
        except OutOfMemory:
            # Of what the job needs on the device: it is no larger than that of others.
            request.handle.end(NO_ROOM)
            self._requests.drop_ended()
        except Exception as error:
            fail(request.handle, error, self._health)
            self._requests.drop_ended()
        else:
            self._requests.fetched(request, prepared)

    def _fetched(self, request: WaitingRequest[P]) -> P:
        try:
            return self._backend.fetch(request.job)
        except OutOfMemory:
            pass
        with self._device.alone():
            return self._backend.fetch(request.job)
