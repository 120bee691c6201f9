"""The Ray Serve deployment of a model."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, cast

from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.checkpoint_files import CheckpointError
from deployments.contract.events import LAST, Alive, Event, Interrupted, Started
from deployments.contract.job import GenerationJob
from deployments.contract.model import ModelSpec
from deployments.contract.model_fault import LoadFailed
from deployments.engine.loop import Engine
from deployments.engine_factory import build_engine, find_cost_store
from deployments.proxies import apply_proxy
from deployments.replica_metrics import ReplicaReporter, write_spans
from deployments.telemetry import create_tracer, logs
from deployments.telemetry.tracing import trace_id
from deployments.text_encoding import RemoteEncoder

if TYPE_CHECKING:
    from deployments.remote_engine.engine import RemoteEngine

logger = logging.getLogger(__name__)

_ALIVE_EVERY_S = 1.0
_MAX_FAULTS = 20
"""Unexpected failures in a row after which the model is broken, not the jobs."""
_DRAIN_TIMEOUT_S = 0.5
"""Seconds that streams have to send their last event before the process exits; less than a health check's timeout."""
_LOAD_RETRY_S = 15.0
"""Seconds between a failed load and the next replica's attempt."""
_UNREADABLE_JOB: Final = Interrupted("the job comes from another release", blame=False, counts=False)
_MAX_ADAPTER_IDS = 16
"""Adapters that the replica reports to Serve's router."""
_EX_SOFTWARE = 70
"""Exit status of a broken device, as in sysexits.h."""


class MediaModel:
    """Streams the events of a job. Results go directly to the object store.

    The event loop only forwards events. Loading, encoding, stepping and finishing run in threads, so that health checks
    are answered at any time.
    """

    async def __init__(self, spec: ModelSpec, text_encoder: DeploymentHandle | None = None) -> None:
        self._spec = spec
        logs.configure_replica(spec.logs)
        apply_proxy(spec.proxy)
        self._log_levels: tuple[tuple[str, str], ...] = ()
        self._tracer = create_tracer(spec.tracing, "model")
        started_at = time.monotonic()
        name = spec.checkpoint or spec.backend
        logger.info("loading %s", name)
        remote_encoder = RemoteEncoder(text_encoder, asyncio.get_running_loop()) if text_encoder else None
        self._engine = await _load_engine(spec, remote_encoder)
        load_s = time.monotonic() - started_at
        self._reporter = ReplicaReporter(self._engine, load_s)
        self._cost_store = find_cost_store(spec, self._engine.setup)
        # Tells Serve's router which adapters were used last: most of them are still loaded.
        self._report_adapter: Any = cast(Any, serve.multiplexed(max_num_models_per_replica=_MAX_ADAPTER_IDS))(
            _adapter_id
        )
        self._engine.start()
        logger.info("%s is loaded and serves after %.1f s", name, load_s)

    async def generate(self, job: GenerationJob) -> AsyncIterator[Event]:
        """Yields events up to one of `LAST`. Cancelling the call removes the job from the batch before its next
        step."""
        if not job.is_readable:
            yield _UNREADABLE_JOB
            return
        self._set_up_logs(job)
        events: asyncio.Queue[Event] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        if job.adapter is not None:
            await self._report_adapter(job.adapter.id)
        handle = self._engine.submit(job, emit)
        started, outcome = False, ""
        self._reporter.job_started()
        try:
            while not outcome:
                try:
                    event = await asyncio.wait_for(events.get(), _ALIVE_EVERY_S)
                except TimeoutError:
                    # Silent while the job waits or the engine hangs: the caller's own timeouts apply then.
                    if started and not self._hangs:
                        yield Alive()
                    continue
                started = started or isinstance(event, Started)
                if isinstance(event, LAST):
                    outcome = type(event).__name__.lower()
                    write_spans(self._tracer, handle, outcome)
                    if (report := self._reporter.report()) is not None:
                        yield report
                yield event
        finally:
            self._reporter.job_finished()
            self._engine.cancel(handle)
            if not outcome:
                write_spans(self._tracer, handle, "cancelled")
            if self._cost_store is not None:
                self._cost_store.write_in_background(lambda: self._engine.learned)

    def _set_up_logs(self, job: GenerationJob) -> None:
        logs.bind(task=job.id, attempt=job.attempt, trace=trace_id(job.traceparent))
        if job.log_levels != self._log_levels:
            self._log_levels = job.log_levels
            logs.set_levels({**self._spec.logs.levels, **dict(job.log_levels)})

    async def check_health(self) -> None:
        """Raises RuntimeError if a new process would help: a step hangs, or only unexpected errors occur.

        Exits the process if its device is broken. Serve replaces a replica that raises only after three checks in a
        row, and until then its router prefers this one, as refusing is quick. It replaces a dead actor at the first
        check. (`RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS` shortens what follows the three checks, not the checks.)
        """
        if self._engine.health.broken:
            logger.critical("the device is broken: this process exits and Serve starts another")
            await asyncio.sleep(_DRAIN_TIMEOUT_S)
            # No cleanup: that would use the device and may hang.
            os._exit(_EX_SOFTWARE)
        if self._hangs:
            raise RuntimeError(f"a step has been running for more than {self._spec.step_limit_s} s")
        if self._engine.health.faults >= _MAX_FAULTS:
            raise RuntimeError(f"{self._engine.health.faults} jobs in a row failed unexpectedly")

    @property
    def _hangs(self) -> bool:
        busy_since = self._engine.health.busy_since
        return busy_since is not None and time.monotonic() - busy_since > self._spec.step_limit_s


async def _load_engine(spec: ModelSpec, text_encoder: RemoteEncoder | None) -> Engine[Any, Any] | RemoteEngine:
    """Raises LoadFailed after a pause, as Serve starts the next replica at once and most faults last longer."""
    try:
        return await asyncio.to_thread(build_engine, spec, text_encoder)
    except Exception as error:
        logger.exception("the model can't be loaded")
        reason = str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
    # Outside the handler: the traceback would keep the loaded parts alive.
    gc.collect()
    await asyncio.sleep(_LOAD_RETRY_S)
    raise LoadFailed(reason, hidden=(spec.checkpoint, spec.config_from or "", spec.redux or ""))


async def _adapter_id(adapter_id: str) -> str:
    return adapter_id
