"""Binds everything: the one place that knows all deployments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ray import serve
from ray.serve.config import AutoscalingConfig
from ray.serve.deployment import Application

from deployments.contract.model import ModelSpec
from deployments.contract.moderation import ModeratorSpec
from deployments.contract.rewriter import RewriterSpec
from deployments.contract.thresholds import Thresholds
from deployments.media_model import MediaModel
from deployments.moderation.deployment import Moderator
from deployments.rewriting.deployment import PromptRewriter
from deployments.telemetry.logs import LogSpec
from deployments.text_encoding.deployment import TextEncoder
from serve_app.config import catalog as catalogs
from serve_app.config.catalog import Catalog, Model, RewriterModel
from serve_app.config.models import ModelSettings, RewriterSettings, TextEncoderSettings
from serve_app.config.settings import Settings
from serve_app.dispatch.deployment import Dispatcher
from serve_app.moderation.settings import ModerationCatalog, ModerationSettings
from serve_app.webhooks.deployment import WebhookSender

if TYPE_CHECKING:
    from fastapi import FastAPI

APP_NAME = "gen"


def build(settings: Settings) -> Application:
    """The Ray Serve application that `settings` describes."""
    catalog = catalogs.load(settings)
    encoders = {name: _text_encoder(name, chosen) for name, chosen in settings.text_encoders.items()}
    models = {
        name: _model(name, model, settings.model(name), settings, encoders) for name, model in catalog.models.items()
    }
    moderation = catalog.moderation if settings.moderation.enabled else None
    logs = settings.logs.spec()
    dispatcher = _deployment(
        Dispatcher,
        logs,
        name="Dispatcher",
        num_replicas=settings.dispatcher.replicas,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=settings.dispatcher.health_check_period_s,
        health_check_timeout_s=3,
        graceful_shutdown_timeout_s=settings.dispatcher.drain_s + 15,
    ).bind(
        settings,
        models,
        _rewriter(catalog.rewriter, settings),
        None if moderation is None else _moderator(moderation, settings),
        None if moderation is None else Thresholds(moderation.thresholds),
    )
    ingress = _deployment(
        serve.ingress(_ingress_app(settings, catalog))(),
        logs,
        name="Ingress",
        num_replicas=settings.service.ingress_replicas,
        max_ongoing_requests=settings.service.max_ongoing_requests,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=1,
        health_check_timeout_s=5,
        graceful_shutdown_timeout_s=35,
    )
    webhook_sender = _deployment(
        WebhookSender,
        logs,
        name="WebhookSender",
        num_replicas=settings.webhooks.replicas,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=1,
        health_check_timeout_s=3,
        graceful_shutdown_timeout_s=settings.webhooks.timeout_s + 5,
    ).bind(settings)
    # The others are arguments only so that they belong to the application; all meet in Redis.
    return ingress.bind(dispatcher, webhook_sender)


async def replicas() -> dict[str, dict[str, int]]:
    """Of each deployment, how many replicas there are by their state: RUNNING, STARTING, …"""
    application = (await asyncio.to_thread(serve.status)).applications.get(APP_NAME)
    deployments = application.deployments if application else {}
    # By its types states are members of an enumeration; Ray 2.60 gives their names.
    return {
        name: {str(getattr(state, "value", state)): count for state, count in found.replica_states.items()}
        for name, found in deployments.items()
    }


def _ingress_app(settings: Settings, catalog: Catalog) -> Callable[[], FastAPI]:
    def build() -> FastAPI:
        # Where it runs: whoever only binds it would wait a second for this import, and keep it.
        from serve_app.http.ingress import replica_app

        return replica_app(settings, catalog, replicas)

    return build


def _deployment(target: type, logs: LogSpec, **options: Any) -> serve.Deployment:
    return cast(serve.Deployment, serve.deployment(**logs.serve_options(), **options)(target))


def _autoscaling(
    chosen: RewriterSettings | ModerationSettings | TextEncoderSettings, target_ongoing_requests: int
) -> AutoscalingConfig:
    """Of what answers in a moment: more replicas within seconds, fewer only after a while."""
    return AutoscalingConfig(
        min_replicas=chosen.min_replicas,
        max_replicas=chosen.max_replicas,
        target_ongoing_requests=target_ongoing_requests,
        upscale_delay_s=1,
        downscale_delay_s=chosen.downscale_delay_s,
        look_back_period_s=5,
        metrics_interval_s=1,
    )


def _replicas(scaling: AutoscalingConfig) -> dict[str, Any]:
    """The options that say how many; where there is nothing to decide, nobody need report the load every second."""
    if scaling.min_replicas == scaling.max_replicas:
        return {"num_replicas": scaling.max_replicas}
    return {"autoscaling_config": scaling}


def _rewriter(model: RewriterModel | None, settings: Settings) -> Application | None:
    chosen = settings.rewriter
    if model is None or not chosen.enabled:
        return None
    spec = RewriterSpec(
        checkpoint=chosen.checkpoint or model.checkpoint,
        revision=None if chosen.checkpoint else model.revision,
        device=chosen.device,
        dtype=chosen.dtype,
        instruction=model.instruction,
        edit_instruction=model.edit_instruction,
        ratio_instruction=model.ratio_instruction,
        max_new_tokens=model.max_new_tokens,
        temperature=model.temperature,
        logs=settings.logs.spec(),
    )
    return _deployment(
        PromptRewriter,
        spec.logs,
        name="PromptRewriter",
        max_ongoing_requests=16,
        **_replicas(_autoscaling(chosen, target_ongoing_requests=4)),
        ray_actor_options=chosen.actor,
        health_check_period_s=2,
        health_check_timeout_s=3,
    ).bind(spec)


def _moderator(known: ModerationCatalog, settings: Settings) -> Application:
    chosen = settings.moderation
    spec = ModeratorSpec(
        text=tuple(judge.spec() for judge in chosen.text or known.text),
        pictures=tuple(judge.spec() for judge in chosen.pictures or known.pictures),
        objects_url=settings.objects_url,
        objects_options=settings.objects.options,
        max_batch=chosen.max_batch,
        threads=chosen.threads,
        logs=settings.logs.spec(),
    )
    return _deployment(
        Moderator,
        spec.logs,
        name="Moderator",
        max_ongoing_requests=8 * chosen.max_batch,
        **_replicas(_autoscaling(chosen, target_ongoing_requests=chosen.max_batch)),
        ray_actor_options=chosen.actor,
        health_check_period_s=1,
        health_check_timeout_s=3,
    ).bind(spec)


def _text_encoder(name: str, chosen: TextEncoderSettings) -> Application:
    return _deployment(
        TextEncoder,
        name=f"TextEncoder-{name}",
        max_ongoing_requests=8 * chosen.max_batch,
        **_replicas(_autoscaling(chosen, target_ongoing_requests=chosen.max_batch)),
        ray_actor_options=chosen.actor,
        health_check_period_s=2,
        health_check_timeout_s=3,
    ).bind(chosen.spec())


def _model(
    name: str, model: Model, chosen: ModelSettings, settings: Settings, encoders: Mapping[str, Application]
) -> Application:
    scaling = chosen.autoscaling
    spec = ModelSpec(
        backend=chosen.backend or model.backend,
        checkpoint=chosen.checkpoint or model.checkpoint,
        revision=None if chosen.checkpoint else model.revision,
        matting=(chosen.matting or model.matting).spec(),
        sharing=chosen.sharing.spec() if chosen.sharing else None,
        caches=chosen.caches.spec(),
        distilled=model.distilled if chosen.distilled is None else chosen.distilled,
        objects_url=settings.objects_url,
        objects_options=settings.objects.options,
        attention=tuple(chosen.attention),
        packed_attention=tuple(chosen.packed_attention),
        tracing=settings.tracing.spec(),
        logs=settings.logs.spec(),
        **chosen.model_dump(
            include={
                "device",
                "dtype",
                "compile",
                "threads",
                "render_side",
                "enlarge",
                "channels_last",
                "tile_above",
                "preview_every",
                "enhance_noise",
                "max_running",
                "max_batch",
                "order",
                "step_goal_s",
                "step_limit_s",
            }
        ),
    )
    return _deployment(
        MediaModel,
        spec.logs,
        name=name,
        # Exactly the engine's slots: what came on top would wait inside the replica, where nobody can see it.
        max_ongoing_requests=chosen.max_running,
        **_replicas(AutoscalingConfig(**scaling.model_dump())),
        ray_actor_options=chosen.actor,
        health_check_period_s=chosen.health_check_period_s,
        health_check_timeout_s=chosen.health_check_timeout_s,
        graceful_shutdown_timeout_s=chosen.drain_s,
    ).bind(spec, encoders[chosen.text_encoder] if chosen.text_encoder else None)
