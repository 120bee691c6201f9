"""The deployment that holds one model, of pictures or of videos, and its step engine."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.backends.simulated import SimulatedBackend, Simulation
from deployments.contract.events import LAST, Alive, Event, Started
from deployments.contract.job import GenerationJob
from deployments.contract.model import DIFFUSION, ModelSpec
from deployments.contract.objects import ObjectStore
from deployments.engine.backend import Backend
from deployments.engine.device_priority import priority_on
from deployments.engine.loop import Engine
from deployments.job_spans import write_spans
from deployments.kept_costs import CostKeeper, KeptCosts
from deployments.reports import Reports
from deployments.telemetry import logs
from deployments.telemetry.tracing import trace_id, tracer_of
from deployments.text_encoding.remote_encoder import RemoteEncoder

logger = logging.getLogger(__name__)

_ALIVE_EVERY_S = 1.0
_FAULTS = 20
"""So many jobs in a row that failed in a way nobody expected: the model is broken, not the jobs."""
_LAST_WORDS_S = 0.5
"""What streams get to tell their callers before the process ends, within the timeout of a health check."""
_HELD = 16
"""Adapters that the router is told of."""
_BROKEN_DEVICE = 70
"""Exit status: EX_SOFTWARE of sysexits.h."""


class MediaModel:
    """Streams the events of a job; what is made goes straight to the object store.

    The event loop only passes events on. Loading, encoding, stepping and finishing happen in threads, so that health
    checks are answered whatever the model does.
    """

    async def __init__(self, spec: ModelSpec, text_encoder: DeploymentHandle | None = None) -> None:
        self._spec = spec
        logs.begin(spec.logs)
        self._log_levels: tuple[tuple[str, str], ...] = ()
        self._tracer = tracer_of(spec.tracing, "model")
        began = time.monotonic()
        logger.info("loading %s", spec.checkpoint)
        shared = RemoteEncoder(text_encoder, asyncio.get_running_loop()) if text_encoder else None
        self._engine = await asyncio.to_thread(engine_of, spec, shared)
        load_s = time.monotonic() - began
        self._reports = Reports(self._engine, load_s)
        kept = _kept_costs(spec, self._engine.setup)
        self._costs = CostKeeper(kept, lambda: self._engine.learned) if kept else None
        # Tells Serve's router which adapters were here last: most of them still are.
        self._hold: Any = cast(Any, serve.multiplexed(max_num_models_per_replica=_HELD))(_held)
        self._engine.start()
        logger.info("%s is loaded and serves after %.1f s", spec.checkpoint, load_s)

    async def generate(self, job: GenerationJob) -> AsyncIterator[Event]:
        """Ends after one of `LAST`. Cancelling the call takes the job out of the batch before its next step."""
        self._note(job)
        events: asyncio.Queue[Event] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        if job.adapter is not None:
            await self._hold(job.adapter.id)
        handle = self._engine.submit(job, emit)
        started, outcome = False, ""
        self._reports.began()
        try:
            while True:
                try:
                    event = await asyncio.wait_for(events.get(), _ALIVE_EVERY_S)
                except TimeoutError:
                    # Nothing to say of a job that still waits, or of an engine that hangs: the caller has its limits.
                    if started and not self._hangs:
                        yield Alive()
                    continue
                started = started or isinstance(event, Started)
                if isinstance(event, LAST):
                    outcome = type(event).__name__.lower()
                    write_spans(self._tracer, handle, outcome)
                if isinstance(event, LAST) and (report := self._reports.due()) is not None:
                    yield report
                yield event
                if isinstance(event, LAST):
                    return
        finally:
            self._reports.ended()
            self._engine.cancel(handle)
            if not outcome:
                write_spans(self._tracer, handle, "cancelled")
            if self._costs is not None:
                self._costs.keep()

    def _note(self, job: GenerationJob) -> None:
        """Takes the task's names into the logs, and the log levels that come with it."""
        logs.about(task=job.id, attempt=job.attempt, trace=trace_id(job.traceparent))
        if job.log_levels != self._log_levels:
            self._log_levels = job.log_levels
            logs.set_levels({**self._spec.logs.levels, **dict(job.log_levels)})

    async def check_health(self) -> None:
        """Raises when a new process would do better: a hung step, or nothing but unexpected errors.

        Ends this one when its device is broken. Serve replaces a replica that raises only after three checks in a row,
        and until then its router prefers this one, since refusing is quick. A dead actor it replaces at the very check.
        (`RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS` shortens what comes behind the three checks, not those.)
        """
        if self._engine.broken:
            logger.critical("the device is broken: this process ends, for another to take its place")
            await asyncio.sleep(_LAST_WORDS_S)
            # Nothing is torn down: that would use the device, and may hang.
            os._exit(_BROKEN_DEVICE)
        if self._hangs:
            raise RuntimeError(f"a step has been running for more than {self._spec.step_limit_s} s")
        if self._engine.faults >= _FAULTS:
            raise RuntimeError(f"{self._engine.faults} jobs in a row failed unexpectedly")

    @property
    def _hangs(self) -> bool:
        busy_since = self._engine.busy_since
        return busy_since is not None and time.monotonic() - busy_since > self._spec.step_limit_s


async def _held(adapter_id: str) -> str:
    return adapter_id


def engine_of(spec: ModelSpec, text_encoder: RemoteEncoder | None = None) -> Engine[Any, Any]:
    """Loads the checkpoint and builds the engine on it. Takes seconds to minutes: call it in a thread."""
    backend = _simulated(spec) or (_diffusion(spec, text_encoder) if spec.backend == DIFFUSION else _restoring(spec))
    kept = _kept_costs(spec, backend.setup)
    return Engine(
        backend,
        known_costs=kept.read() if kept else {},
        max_running=spec.max_running,
        max_batch=spec.max_batch,
        order=spec.order,
        step_goal_s=spec.step_goal_s,
        preview_every=spec.preview_every,
        preview_interval_s=spec.preview_interval_s,
        device_priority=priority_on(spec.sharing),
    )


def _kept_costs(spec: ModelSpec, setup: Mapping[str, str]) -> KeptCosts | None:
    """None for a backend that names no device: what its steps cost says nothing about another replica's."""
    if "device" not in setup:
        return None
    store = ObjectStore.of(spec)
    matters = {name: value for name, value in setup.items() if name != "dtype_because"}
    return KeptCosts(
        store, f"{spec.backend} {spec.checkpoint}@{spec.revision or ''}", matters | {"enlarge": spec.enlarge}
    )


def _simulated(spec: ModelSpec) -> Backend[Any, Any] | None:
    simulation = Simulation.of(spec.checkpoint)
    if simulation is None:
        return None
    return SimulatedBackend(simulation, ObjectStore.of(spec))


def _restoring(spec: ModelSpec) -> Backend[Any, Any]:
    from deployments.backends.restoration import RestorerBackend
    from deployments.restorers.restorer import load_restorer

    return RestorerBackend(load_restorer(spec), ObjectStore.of(spec))


def _diffusion(spec: ModelSpec, text_encoder: RemoteEncoder | None) -> Backend[Any, Any]:
    from deployments import checkpoints
    from deployments.backends.clips import ClipBackend
    from deployments.backends.diffusion import DiffusionBackend
    from deployments.families.clip_family import ClipFamily
    from deployments.torch_process import set_up_torch

    set_up_torch(spec.threads)
    loaded = checkpoints.load(
        spec.checkpoint,
        revision=spec.revision,
        device=spec.device,
        dtype=spec.dtype,
        attention=spec.attention,
        packed_attention=spec.packed_attention,
        compile=spec.compile,
        render_side=spec.render_side,
        enlarge=spec.enlarge,
        channels_last=spec.channels_last,
        tile_above=spec.tile_above,
        true_guidance=spec.true_guidance,
        redux=spec.redux,
        distilled=spec.distilled,
        enhance_noise=spec.enhance_noise,
        video_guidance=spec.video_guidance,
        keyframe_crf=spec.keyframe_crf,
        caches=spec.caches,
        text_encoder=text_encoder,
    )
    store, family = ObjectStore.of(spec), loaded.family
    if isinstance(family, ClipFamily):
        model = f"{spec.checkpoint}@{spec.revision or ''} {loaded.setup['dtype']}"
        return ClipBackend(family, store, model, enlarge=spec.enlarge, threads=spec.threads, setup=loaded.setup)
    return DiffusionBackend(
        family, store, adapters_mb=spec.caches.adapters_mb, matting=spec.matting, setup=loaded.setup
    )
