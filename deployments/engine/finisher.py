"""Makes the pictures of states whose steps are done, and has them stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Generic

from deployments.contract.events import Done
from deployments.contract.job import Output
from deployments.engine.backend import Backend, DeviceBroken, OutOfMemory, P, S
from deployments.engine.background import Background
from deployments.engine.exclusive import Exclusive
from deployments.engine.failures import DEVICE_BROKEN, fail
from deployments.engine.health import Health, Worker
from deployments.engine.request_handle import Reached, RequestHandle
from deployments.engine.request_table import ActiveRequest, RequestTable

MAX_STORING: Final = 64
"""Pictures on their way to the store; the next is finished once there are fewer."""


class Finisher(Generic[P, S]):
    """Used from one thread alone, while another one takes steps."""

    def __init__(
        self,
        backend: Backend[P, S],
        requests: RequestTable[P, S],
        background: Background,
        health: Health,
        device: Exclusive,
    ) -> None:
        self._backend = backend
        self._requests = requests
        self._background = background
        self._health = health
        self._device = device

    def work(self) -> bool:
        """Finishes one picture. Raises DeviceBroken."""
        request = self._requests.to_finish(MAX_STORING)
        if request is None:
            return False
        reached = request.handle.reached
        reached[Reached.FINISHING] = self._health.now()
        try:
            store = self._finished(request)
        except DeviceBroken:
            request.handle.end(DEVICE_BROKEN)
            self._requests.remove(request)
            raise
        except Exception as error:
            fail(request.handle, error, self._health)
            # Only after its last event: whoever waits for an isolated job to end starts behind it.
            self._requests.remove(request)
        else:
            reached[Reached.FINISHED] = self._health.now()
            self._requests.storing(request)
            self._background.run(partial(self._store, request.handle, store))
        return True

    def _finished(self, request: ActiveRequest[S]) -> Callable[[], Output]:
        with self._health.call(Worker.FINISH, [request.handle]):
            try:
                with self._device.beside():
                    return self._backend.finish(request.state)
            except OutOfMemory:
                pass
            with self._device.alone():
                return self._backend.finish(request.state)

    def _store(self, handle: RequestHandle, store: Callable[[], Output]) -> None:
        if handle.ended:
            self._requests.stored(handle)
            return
        try:
            output = store()
        except Exception as error:
            fail(handle, error, self._health)
        else:
            self._health.succeeded(handle.job)
            handle.end(Done(output))
        self._requests.stored(handle)
