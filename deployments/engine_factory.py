"""Factory of engines: loads the model that a spec names, as a backend, and builds the engine that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deployments.backend import Backend
from deployments.backends.simulated import SimulatedBackend, SimulatedModel
from deployments.contract.model import DIFFUSION, ENGINE, RESTORERS, ModelSpec
from deployments.contract.objects import ObjectStore
from deployments.contract.workflow import Workflow
from deployments.engine.device import priority_on
from deployments.engine.loop import Engine
from deployments.step_cost_store import StepCostStore
from deployments.text_encoding import RemoteEncoder

if TYPE_CHECKING:
    from deployments.remote_engine.engine import RemoteEngine


def build_engine(spec: ModelSpec, text_encoder: RemoteEncoder | None = None) -> Engine[Any, Any] | RemoteEngine:
    """Loads the checkpoint and builds the engine on it. Takes seconds to minutes: call it in a thread."""
    if spec.backend == ENGINE:
        assert spec.engine is not None
        from deployments.remote_engine.engine import RemoteEngine

        workflow = Workflow(spec.workflow) if spec.workflow else None
        store = ObjectStore.from_location(spec)
        return RemoteEngine(spec.engine, store, max_running=spec.max_running, workflow=workflow)
    backend, engine_options = _load_backend(spec, text_encoder)
    cost_store = find_cost_store(spec, backend.setup)
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
        **engine_options,
    )


def find_cost_store(spec: ModelSpec, setup: Mapping[str, str]) -> StepCostStore | None:
    """Returns None for a backend that names no device: its costs say nothing about other replicas."""
    if "device" not in setup:
        return None
    relevant = {name: value for name, value in setup.items() if name != "dtype_because"} | {"enlarge": spec.enlarge}
    checkpoint = f"{spec.backend} {spec.checkpoint}@{spec.revision or ''}"
    return StepCostStore(ObjectStore.from_location(spec), checkpoint, relevant)


def _load_backend(spec: ModelSpec, text_encoder: RemoteEncoder | None) -> tuple[Backend[Any, Any], dict[str, Any]]:
    """Returns the backend and the options of the engine that follow from it."""
    if (simulated := SimulatedModel.from_checkpoint(spec.checkpoint)) is not None:
        return SimulatedBackend(simulated, ObjectStore.from_location(spec)), {}
    if spec.backend in RESTORERS:
        from deployments.backends.restoration import RestorerBackend
        from deployments.restorers import load_restorer

        return RestorerBackend(load_restorer(spec), ObjectStore.from_location(spec)), {}
    from deployments import native_loading

    if spec.backend == DIFFUSION and native_loading.is_native(spec):
        return _load_native_backend(spec, text_encoder), {}
    return _load_diffusers_backend(spec)


def _load_native_backend(spec: ModelSpec, text_encoder: RemoteEncoder | None) -> Backend[Any, Any]:
    from deployments import native_loading
    from deployments.backends.images import DiffusionBackend
    from deployments.backends.videos import VideoBackend
    from deployments.families.video_family import VideoFamily
    from deployments.torch_process import set_up_torch

    set_up_torch(spec.threads)
    loaded = native_loading.load(spec, text_encoder)
    store, family = ObjectStore.from_location(spec), loaded.family
    if isinstance(family, VideoFamily):
        model = f"{spec.checkpoint}@{spec.revision or ''} {loaded.setup['dtype']}"
        return VideoBackend(family, store, model, enlarge=spec.enlarge, threads=spec.threads, setup=loaded.setup)
    return DiffusionBackend(
        family, store, adapters_mb=spec.caches.adapters_mb, matting=spec.matting, setup=loaded.setup
    )


def _load_diffusers_backend(spec: ModelSpec) -> tuple[Backend[Any, Any], dict[str, Any]]:
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
