"""The Ray Serve deployment of a model: its engine, health, metrics and traces."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from obstore.exceptions import BaseError
from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.backend import Backend
from deployments.backends.simulated import SimulatedBackend, Simulation
from deployments.checkpoint_files import CheckpointError
from deployments.contract.counts import ATTENTION_FALLBACKS, BUSY_S, COMPILE_FALLBACKS, LOAD_S, LOADS
from deployments.contract.events import LAST, Alive, Event, Interrupted, Started
from deployments.contract.job import GenerationJob
from deployments.contract.model import DIFFUSION, ENGINE, RESTORERS, ModelSpec
from deployments.contract.model_fault import LoadFailed
from deployments.contract.objects import ObjectStore
from deployments.engine.cost_model import StepCost
from deployments.engine.device import priority_on
from deployments.engine.loop import Engine
from deployments.engine.requests import Milestone, RequestHandle
from deployments.proxies import apply_proxy
from deployments.telemetry import logs
from deployments.telemetry.tracing import Attributes, Tracer, create_tracer, trace_id
from deployments.text_encoding import RemoteEncoder

if TYPE_CHECKING:
    from deployments.remote_engine.engine import RemoteEngine

logger = logging.getLogger(__name__)

REPORTS_EVERY_S: Final = 1.0


class Counting(Protocol):
    @property
    def setup(self) -> Mapping[str, str]: ...
    @property
    def counts(self) -> Mapping[str, float]: ...


class Reports:
    """Used from one thread alone. What is in a report that got lost on its way is lost: figures, no accounts."""

    def __init__(self, engine: Counting, load_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`load_s` is how long the model took to load, which the first report tells."""
        self._engine = engine
        self._clock = clock
        self._jobs = 0
        self._since = 0.0
        self._busy_s = 0.0
        setup = engine.setup
        self._load_counts = {
            LOADS: 1.0,
            LOAD_S: load_s,
            COMPILE_FALLBACKS: float(setup.get("compiled") == "failed"),
            ATTENTION_FALLBACKS: float(len(setup.get("attention_unusable", "").split())),
        }
        self._last_counts: Mapping[str, float] = engine.counts  # of trying the model, which was no job's
        self._last_report_at = -REPORTS_EVERY_S

    def began(self) -> None:
        """A job came."""
        if not self._jobs:
            self._since = self._clock()
        self._jobs += 1

    def ended(self) -> None:
        """A job left."""
        self._jobs -= 1
        if not self._jobs:
            self._busy_s += self._clock() - self._since

    def due(self) -> Alive | None:
        """What is to be told with a job that ends now: at most once a second, but always with the last job there is."""
        now = self._clock()
        if self._jobs > 1 and now - self._last_report_at < REPORTS_EVERY_S:
            return None
        busy_s = self._busy_s + (now - self._since if self._jobs else 0.0)
        counts = {**self._engine.counts, **self._load_counts, BUSY_S: busy_s}
        deltas = {name: count - self._last_counts.get(name, 0) for name, count in counts.items()}
        self._last_counts, self._last_report_at = counts, now
        return Alive({name: count for name, count in deltas.items() if count}, self._engine.setup)


_STAGES: Final = (
    ("encode", Milestone.ADMITTED, Milestone.ENCODED),
    ("steps", Milestone.ENCODED, Milestone.LAST_STEP),
    ("finish", Milestone.FINISHING, Milestone.FINISHED),
)
"""Between two of them a job waits: for its inputs and a place in the batch, for the thread that finishes."""


def write_spans(tracer: Tracer, handle: RequestHandle, outcome: str) -> None:
    """Of a job that ends now, by the engine's clock, which is `time.monotonic`. `outcome` is the last event's name."""
    job = handle.job
    if not job.traceparent:
        return
    milestones, now = handle.reached, time.monotonic()
    epoch, attributes = time.time() - now, _attributes(job, outcome)
    tracer.record(
        "wait", job.traceparent, epoch + handle.submitted, epoch + milestones.get(Milestone.ADMITTED, now), attributes
    )
    latest = max(milestones.values(), default=now)
    for name, began, ended in _STAGES:
        # One that was passed over has a beginning and no end: a video that goes on where its steps were done.
        if began in milestones and (ended in milestones or milestones[began] == latest):
            tracer.record(
                name, job.traceparent, epoch + milestones[began], epoch + milestones.get(ended, now), attributes
            )
    if Milestone.FINISHED in milestones:
        tracer.record("store", job.traceparent, epoch + milestones[Milestone.FINISHED], epoch + now, attributes)


def _attributes(job: GenerationJob, outcome: str) -> Attributes:
    return {"gen.task": job.id, "gen.attempt": job.attempt, "gen.steps": job.request.steps, "gen.outcome": outcome}


FOLDER: Final = "models/costs"
COSTS_EVERY_S: Final = 60.0


class StepCostStore:
    """Every call waits for the object store."""

    def __init__(self, store: ObjectStore, checkpoint: str, setup: Mapping[str, str]) -> None:
        """`setup` is all that a step's time depends on, beside the checkpoint."""
        self._store = store
        identity = json.dumps([checkpoint, sorted(setup.items())])
        self._key = f"{FOLDER}/{sha256(identity.encode()).hexdigest()[:32]}.json"

    def read(self) -> dict[str, StepCost]:
        """By kinds of steps; nothing where nothing is known, or it can't be had."""
        try:
            return self._load()
        except (BaseError, OSError) as error:
            logger.warning("what steps cost is learned anew: %s", error)
            return {}

    def write(self, costs: Mapping[str, StepCost]) -> None:
        """Beside what is known of other kinds."""
        try:
            entries = {kind: asdict(cost) for kind, cost in {**self._load(), **costs}.items()}
            self._store.put_blocking(self._key, json.dumps(entries).encode(), "application/json")
        except (BaseError, OSError) as error:
            logger.warning("what steps cost is not kept: %s", error)

    def _load(self) -> dict[str, StepCost]:
        """Nothing where there is nothing, or what makes no sense. Raises BaseError and OSError out of reach."""
        try:
            entries = json.loads(self._store.get_blocking(self._key))
            return {kind: _cost(parts) for kind, parts in entries.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            logger.warning("what is kept of steps' cost makes no sense: %s", error)
            return {}


class CostKeeper:
    """Keeps what an engine learns, beside its work."""

    def __init__(
        self,
        store: StepCostStore,
        costs: Callable[[], Mapping[str, StepCost]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._costs = costs
        self._clock = clock
        self._last_write_at = clock()
        self._writing: Thread | None = None

    def keep(self) -> Thread | None:
        """Writes what was learned if the last time was a while ago, in a thread of its own, which is returned."""
        busy = self._writing is not None and self._writing.is_alive()
        if busy or self._clock() - self._last_write_at < COSTS_EVERY_S or not (costs := self._costs()):
            return None
        self._last_write_at = self._clock()
        self._writing = Thread(target=self._store.write, args=(costs,), name="costs", daemon=True)
        self._writing.start()
        return self._writing


def _cost(parts: Mapping[str, float]) -> StepCost:
    """Raises ValueError and TypeError for what is none."""
    cost = StepCost(**{name: float(part) for name, part in parts.items()})
    numbers = cost.fixed, cost.per_token, cost.per_square
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or not any(numbers):
        raise ValueError(f"no cost of steps: {dict(parts)}")
    return cost


_ALIVE_EVERY_S = 1.0
_FAULTS = 20
"""So many jobs in a row that failed in a way nobody expected: the model is broken, not the jobs."""
_LAST_WORDS_S = 0.5
"""What streams get to tell their callers before the process ends, within the timeout of a health check."""
_LOAD_AGAIN_S = 15.0
"""The pause after a model could not be loaded, before another replica tries."""
_UNREADABLE_JOB: Final = Interrupted("the job comes from another release", blame=False, counts=False)
_MAX_ADAPTER_IDS = 16
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
        apply_proxy(spec.proxy)
        self._log_levels: tuple[tuple[str, str], ...] = ()
        self._tracer = create_tracer(spec.tracing, "model")
        began = time.monotonic()
        name = spec.checkpoint or spec.backend
        logger.info("loading %s", name)
        remote_encoder = RemoteEncoder(text_encoder, asyncio.get_running_loop()) if text_encoder else None
        self._engine = await _load_engine(spec, remote_encoder)
        load_s = time.monotonic() - began
        self._reports = Reports(self._engine, load_s)
        cost_store = _cost_store(spec, self._engine.setup)
        self._costs = CostKeeper(cost_store, lambda: self._engine.learned) if cost_store else None
        # Tells Serve's router which adapters were here last: most of them still are.
        self._report_adapter: Any = cast(Any, serve.multiplexed(max_num_models_per_replica=_MAX_ADAPTER_IDS))(
            _adapter_id
        )
        self._engine.start()
        logger.info("%s is loaded and serves after %.1f s", name, load_s)

    async def generate(self, job: GenerationJob) -> AsyncIterator[Event]:
        """Ends after one of `LAST`. Cancelling the call takes the job out of the batch before its next step."""
        if not job.is_readable:
            yield _UNREADABLE_JOB
            return
        self._note(job)
        events: asyncio.Queue[Event] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        if job.adapter is not None:
            await self._report_adapter(job.adapter.id)
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


async def _load_engine(spec: ModelSpec, text_encoder: RemoteEncoder | None) -> Engine[Any, Any] | RemoteEngine:
    """Raises LoadFailed, after a pause: Serve starts the next replica at once, and most faults last longer."""
    try:
        return await asyncio.to_thread(build_engine, spec, text_encoder)
    except Exception as error:
        logger.exception("the model can't be loaded")
        reason = str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
    # Outside the handler: there, the traceback would keep what was loaded alive.
    gc.collect()
    await asyncio.sleep(_LOAD_AGAIN_S)
    raise LoadFailed(reason, hidden=(spec.checkpoint, spec.config_from or "", spec.redux or ""))


async def _adapter_id(adapter_id: str) -> str:
    return adapter_id


def build_engine(spec: ModelSpec, text_encoder: RemoteEncoder | None = None) -> Engine[Any, Any] | RemoteEngine:
    """Loads the checkpoint and builds the engine on it. Takes seconds to minutes: call it in a thread."""
    if spec.backend == ENGINE:
        assert spec.engine is not None
        from deployments.remote_engine.engine import RemoteEngine

        return RemoteEngine(spec.engine, ObjectStore.from_location(spec), max_running=spec.max_running)
    backend, options = _load_backend(spec, text_encoder)
    cost_store = _cost_store(spec, backend.setup)
    return Engine(
        backend,
        initial_costs=cost_store.read() if cost_store else {},
        max_running=spec.max_running,
        max_batch=spec.max_batch,
        order=spec.order,
        step_goal_s=spec.step_goal_s,
        preview_every=spec.preview_every,
        preview_interval_s=spec.preview_interval_s,
        device_priority=priority_on(spec.sharing),
        **options,
    )


def _load_backend(spec: ModelSpec, text_encoder: RemoteEncoder | None) -> tuple[Backend[Any, Any], dict[str, Any]]:
    """The backend, and options of the engine that follow from it."""
    if simulated := _simulated_backend(spec):
        return simulated, {}
    if spec.backend in RESTORERS:
        return _restoration_backend(spec), {}
    from deployments import native_loading

    if spec.backend == DIFFUSION and native_loading.is_native(spec):
        return _diffusion_backend(spec, text_encoder), {}
    return _diffusers_backend(spec)


def _diffusers_backend(spec: ModelSpec) -> tuple[Backend[Any, Any], dict[str, Any]]:
    from deployments.backends.diffusers import DiffusersBackend
    from deployments.diffusers_loading import load_pipeline
    from deployments.torch_process import set_up_torch

    set_up_torch(spec.threads)
    loaded = load_pipeline(spec)
    backend = DiffusersBackend(
        loaded.pipeline,
        ObjectStore.from_location(spec),
        pipeline_kwargs=spec.pipeline_kwargs,
        preview_decoder=loaded.preview_decoder,
        interleaves=loaded.interleaves,
        max_batch=spec.max_batch if loaded.takes_several else 1,
        adapters_mb=spec.caches.adapters_mb,
        threads=spec.threads,
        setup=loaded.setup,
    )
    return backend, {"batching": backend}


def _cost_store(spec: ModelSpec, setup: Mapping[str, str]) -> StepCostStore | None:
    """None for a backend that names no device: what its steps cost says nothing about another replica's."""
    if "device" not in setup:
        return None
    store = ObjectStore.from_location(spec)
    matters = {name: value for name, value in setup.items() if name != "dtype_because"}
    return StepCostStore(
        store, f"{spec.backend} {spec.checkpoint}@{spec.revision or ''}", matters | {"enlarge": spec.enlarge}
    )


def _simulated_backend(spec: ModelSpec) -> Backend[Any, Any] | None:
    simulation = Simulation.from_checkpoint(spec.checkpoint)
    if simulation is None:
        return None
    return SimulatedBackend(simulation, ObjectStore.from_location(spec))


def _restoration_backend(spec: ModelSpec) -> Backend[Any, Any]:
    from deployments.backends.restoration import RestorerBackend
    from deployments.restorers import load_restorer

    return RestorerBackend(load_restorer(spec), ObjectStore.from_location(spec))


def _diffusion_backend(spec: ModelSpec, text_encoder: RemoteEncoder | None) -> Backend[Any, Any]:
    from deployments import native_loading
    from deployments.backends.images import DiffusionBackend
    from deployments.backends.videos import VideoBackend
    from deployments.families.video_family import VideoFamily
    from deployments.torch_process import set_up_torch

    set_up_torch(spec.threads)
    loaded_model = native_loading.load(spec, text_encoder)
    store, family = ObjectStore.from_location(spec), loaded_model.family
    if isinstance(family, VideoFamily):
        model = f"{spec.checkpoint}@{spec.revision or ''} {loaded_model.setup['dtype']}"
        return VideoBackend(family, store, model, enlarge=spec.enlarge, threads=spec.threads, setup=loaded_model.setup)
    return DiffusionBackend(
        family, store, adapters_mb=spec.caches.adapters_mb, matting=spec.matting, setup=loaded_model.setup
    )
