"""Encodes admitted jobs together, in batches as large as memory allows, so that one bad job fails alone."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Generic

from deployments.engine.backend import Backend, DeviceBroken, JobError, OutOfMemory, S
from deployments.engine.failures import fail
from deployments.engine.health import Health, Worker
from deployments.engine.memory_limit import MemoryLimit
from deployments.engine.request_handle import RequestHandle
from deployments.engine.request_table import ActiveRequest

log = logging.getLogger(__name__)


class Encoder(Generic[S]):
    """Used from the engine's loop thread alone."""

    def __init__(self, backend: Backend[S], max_batch: int, health: Health) -> None:
        """Raises ValueError for `max_batch` below one."""
        self._backend = backend
        self._limit = MemoryLimit(max_batch)
        self._health = health

    @property
    def max_batch(self) -> int:
        """Jobs that are believed to fit into memory together, by now."""
        return self._limit.size

    def encode(self, handles: Sequence[RequestHandle]) -> list[ActiveRequest[S]]:
        """Makes pictures of jobs. A batch that fails is tried again in parts, so that only bad jobs fail.

        Raises DeviceBroken; the jobs are the caller's to end then.
        """
        requests: list[ActiveRequest[S]] = []
        pending = deque([list(handles)])
        too_many, one_too_large = 0, False
        while pending:
            batch = [handle for handle in pending.popleft() if not handle.ended]
            if not batch:
                continue
            try:
                with self._health.call(Worker.STEPS):
                    results = self._backend.encode([handle.job for handle in batch])
                pairs = list(zip(batch, results, strict=True))
            except DeviceBroken:
                raise
            except Exception as error:
                memory = isinstance(error, OutOfMemory)
                if len(batch) == 1:
                    fail(batch[0], error, self._health)
                    one_too_large |= memory
                    continue
                log.warning("encoding %d jobs failed; tried again in parts", len(batch), exc_info=error)
                too_many = len(batch) if memory else too_many
                size = (len(batch) + 1) // 2 if memory else 1
                pending.extendleft(reversed([batch[first : first + size] for first in range(0, len(batch), size)]))
                continue
            self._limit.fitted(len(batch))
            for handle, result in pairs:
                if isinstance(result, JobError):
                    fail(handle, result, self._health)
                else:
                    requests.append(ActiveRequest(handle, result))
        if too_many and not one_too_large:
            # Otherwise it was the one job and not the number of them.
            self._limit.failed(too_many)
        return requests
