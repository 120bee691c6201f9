"""Admits jobs and encodes them together, in batches as large as memory allows, so that one bad job fails alone."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Generic

from deployments.contract.events import Started
from deployments.engine.backend import Backend, DeviceBroken, JobError, OutOfMemory, P, S
from deployments.engine.exclusive import Exclusive
from deployments.engine.failures import DEVICE_BROKEN, fail
from deployments.engine.health import Health, Worker
from deployments.engine.memory_limit import MemoryLimit
from deployments.engine.request_handle import Reached
from deployments.engine.request_table import ActiveRequest, RequestTable, Stage, WaitingRequest

log = logging.getLogger(__name__)


class Encoder(Generic[P, S]):
    """Used from one thread alone, while another one takes steps."""

    def __init__(
        self,
        backend: Backend[P, S],
        requests: RequestTable[P, S],
        health: Health,
        device: Exclusive,
        *,
        max_running: int,
        max_batch: int,
    ) -> None:
        """Raises ValueError for `max_batch` below one."""
        self._backend = backend
        self._requests = requests
        self._health = health
        self._device = device
        self._max_running = max_running
        self._limit = MemoryLimit(max_batch)

    def work(self) -> bool:
        """Admits who may join, as many as are believed to fit into memory together, and encodes them. Raises
        DeviceBroken."""
        admitted = self._requests.admit(max_running=self._max_running, at_most=self._limit.size)
        if not admitted:
            return False
        now = self._health.now()
        for request in admitted:
            request.handle.reached[Reached.ADMITTED] = now
            request.handle.send(Started())
        encoded: list[ActiveRequest[S]] = []
        try:
            encoded = self._encode(admitted)
            now = self._health.now()
            for request in encoded:
                request.handle.reached[Reached.ENCODED] = now
                if request.state.done_steps >= request.state.total_steps:  # one that was resumed
                    request.stage = Stage.STEPPED
        except DeviceBroken:
            for request in admitted:
                request.handle.end(DEVICE_BROKEN)
            raise
        finally:
            self._requests.encoded(encoded)
        return True

    def _encode(self, admitted: Sequence[WaitingRequest[P]]) -> list[ActiveRequest[S]]:
        """Makes pictures of jobs that were fetched. A batch that fails is tried again in parts, so that only bad jobs
        fail; one that does not fit alone, once more without a step beside it. Raises DeviceBroken.
        """
        requests: list[ActiveRequest[S]] = []
        pending = deque([list(admitted)])
        too_many, one_too_large = 0, False
        while pending:
            batch = [request for request in pending.popleft() if not request.handle.ended]
            if not batch:
                continue
            try:
                pairs = list(zip(batch, self._encoded(batch), strict=True))
            except DeviceBroken:
                raise
            except Exception as error:
                memory = isinstance(error, OutOfMemory)
                if len(batch) == 1:
                    fail(batch[0].handle, error, self._health)
                    one_too_large |= memory
                    continue
                log.warning("encoding %d jobs failed; tried again in parts", len(batch), exc_info=error)
                too_many = len(batch) if memory else too_many
                size = (len(batch) + 1) // 2 if memory else 1
                pending.extendleft(reversed([batch[first : first + size] for first in range(0, len(batch), size)]))
                continue
            self._limit.fitted(len(batch))
            for request, result in pairs:
                if isinstance(result, JobError):
                    fail(request.handle, result, self._health)
                else:
                    requests.append(ActiveRequest(request.handle, result))
        if too_many and not one_too_large:
            # Otherwise it was the one job and not the number of them.
            self._limit.failed(too_many)
        return requests

    def _encoded(self, batch: Sequence[WaitingRequest[P]]) -> list[S | JobError]:
        prepared = [request.prepared for request in batch if request.prepared is not None]
        with self._health.call(Worker.ENCODE, [request.handle for request in batch]):
            try:
                with self._device.beside():
                    return self._backend.encode(prepared)
            except OutOfMemory:
                if len(batch) > 1:
                    raise
            with self._device.alone():
                return self._backend.encode(prepared)
