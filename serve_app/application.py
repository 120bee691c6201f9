"""The Ray Serve application: binds all deployments.

Ray's own commands use `app`: `serve run serve_app.application:app config=/etc/gen-serve/config.yaml`. Ray reads the
type of its argument from the signature, so this file must not postpone the evaluation of annotations. `serve build`
cannot pass arguments: `built` reads the path of the settings file from `GEN_CONFIG`.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from deployments.contract.counts import ReplicaCounts
from deployments.contract.model import RewriterSpec, TextEncoderSpec
from deployments.contract.moderation import ModeratorSpec, Thresholds
from deployments.moderation.deployment import Moderator
from deployments.replica import MediaModel
from deployments.rewriting.deployment import PromptRewriter
from deployments.telemetry.logs import LogSpec
from deployments.text_encoding import TextEncoder
from serve_app import ray_internals
from serve_app.config import catalog as catalogs
from serve_app.config import settings as all_settings
from serve_app.config.catalog import Catalog, RewriterModel
from serve_app.config.model_settings import AutoscalingSettings, RewriterSettings, TextEncoderSettings
from serve_app.config.replicas import (
    BoundSettings,
    WithheldOptions,
    complete,
    deployment_version,
    secret_values,
)
from serve_app.config.settings import Settings
from serve_app.config.specs import model_spec, moderator_spec, rewriter_spec
from serve_app.dispatcher import deployment as dispatch
from serve_app.dispatcher.deployment import Dispatcher
from serve_app.moderation.settings import ModerationSettings
from serve_app.webhooks import deployment as webhooks
from serve_app.webhooks.deployment import WebhookSender

if TYPE_CHECKING:
    from fastapi import FastAPI

APP_NAME = "gen"
_NOT_READ_BY_INGRESS: Final = {"dispatcher", "moderation", "text_encoders", "ray"}


class Args(BaseModel):
    """Arguments of `app`, from the command line of `serve run` or `args` in a Serve config file."""

    model_config = ConfigDict(extra="forbid")

    config: Path
    """The settings file. Its path must be valid on every node, so an absolute one is safest."""
    revision: Annotated[str, Field(max_length=100)] = ""
    """Any text. `serve deploy` compares the arguments, not the file's content: change it to rebuild everything."""


def app(args: Args) -> serve.Application:
    """Builds the application from a settings file. Raises FileNotFoundError, or ValueError for missing settings.

    Serve stores and displays the arguments, so they must not contain a secret: see `config/replicas.py`.
    """
    return build(complete(all_settings.load(args.config)), args.revision)


def __getattr__(name: str) -> serve.Application:
    """Builds `built` on first access: other importers of this module have no settings at hand."""
    if name != "built":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not (config := os.environ.get("GEN_CONFIG")):
        raise ValueError("GEN_CONFIG is not set: it names the settings file of serve_app.application:built")
    return app(Args(config=Path(config)))


def build(settings: Settings, revision: str = "") -> serve.Application:
    """Builds the Ray Serve application. Another `revision` restarts every replica."""
    catalog = catalogs.load(settings)
    version = Versioning(settings, revision)
    encoders = {name: _text_encoder(name, encoder, version) for name, encoder in settings.text_encoders.items()}
    models = {name: _model(name, catalog, version, encoders) for name in catalog.models}
    moderation = catalog.moderation if settings.moderation.enabled else None
    moderators = moderator_spec(moderation, settings, version.withheld) if moderation else None
    logs = settings.logs.spec()
    bound = BoundSettings.from_settings(settings)
    dispatcher = version.bind(
        _deployment(
            Dispatcher,
            logs,
            name="Dispatcher",
            num_replicas=settings.dispatcher.num_replicas,
            ray_actor_options=settings.dispatcher.ray_actor_options,
            **_per_node_option(settings.dispatcher.max_replicas_per_node),
            health_check_period_s=settings.dispatcher.health_check_period_s,
            health_check_timeout_s=3,
            graceful_shutdown_timeout_s=settings.dispatcher.drain_s + 15,
        ),
        bound,
        models,
        _rewriter(catalog.rewriter, version),
        None if moderators is None else _moderator(moderators, version),
        moderators,
        None if moderation is None else Thresholds(moderation.thresholds),
        reads=dispatch.SECTIONS,
    )
    webhook_sender = version.bind(
        _deployment(
            WebhookSender,
            logs,
            name="WebhookSender",
            num_replicas=settings.webhooks.num_replicas,
            ray_actor_options=settings.webhooks.ray_actor_options,
            **_per_node_option(settings.webhooks.max_replicas_per_node),
            health_check_period_s=1,
            health_check_timeout_s=3,
            graceful_shutdown_timeout_s=settings.webhooks.timeout_s + 5,
        ),
        bound,
        reads=webhooks.SECTIONS,
    )
    sections = set(Settings.model_fields) - _NOT_READ_BY_INGRESS
    return version.bind(
        _deployment(
            serve.ingress(_ingress_app(bound, catalog))(),
            logs,
            name="Ingress",
            num_replicas=settings.service.num_replicas,
            max_ongoing_requests=settings.service.max_ongoing_requests,
            ray_actor_options=settings.service.ray_actor_options,
            **_per_node_option(settings.service.max_replicas_per_node),
            health_check_period_s=1,
            health_check_timeout_s=5,
            graceful_shutdown_timeout_s=35,
        ),
        # Bound to the ingress only to be part of the application; they communicate through Redis.
        dispatcher,
        webhook_sender,
        # The app has these already; as arguments they are part of the deployment's version.
        bound,
        catalog,
        reads=sections,
    )


class Versioning:
    """Deployment versions of one application. Serve restarts the replicas of a deployment whose version changed."""

    def __init__(self, settings: Settings, revision: str) -> None:
        self.settings = settings
        self.withheld = WithheldOptions.from_settings(settings)
        """Reads the secret options of the object store, for models and moderators; None if there are none."""
        self._revision = revision

    def bind(self, deployment: serve.Deployment, *args: object, reads: Collection[str]) -> serve.Application:
        """Binds a deployment that reads the sections `reads` of the settings."""
        settings = self.settings
        key = settings.sealing_keys[0] if settings.has_sealing_keys else None
        version = deployment_version(args, reads, secret_values(settings), key, self._revision)
        return ray_internals.with_version(deployment, version).bind(*args)

    def bind_model(self, deployment: serve.Deployment, *args: object) -> serve.Application:
        """Binds a deployment that depends on its arguments and the object store only."""
        return self.bind(deployment, *args, reads=("objects",))


async def count_replicas(name: str | None = None) -> dict[str, ReplicaCounts]:
    """Returns the replica counts of each deployment of an application; by default, of the calling replica's own."""
    return await asyncio.to_thread(ray_internals.count_replicas, name or serve.get_replica_context().app_name)


def _ingress_app(settings: BoundSettings, catalog: Catalog) -> Callable[[], "FastAPI"]:
    def build() -> "FastAPI":
        # The import takes a second and much memory: only the ingress needs it, not the process that binds it.
        from serve_app.api.app import replica_app

        return replica_app(settings.settings(), catalog, count_replicas)

    return build


def _deployment(target: type, logs: LogSpec, **options: Any) -> serve.Deployment:
    return cast(serve.Deployment, serve.deployment(**logs.serve_options(), **options)(target))


def _model_autoscaling(name: str, scaling: AutoscalingSettings, settings: Settings) -> AutoscalingConfig:
    """Returns Ray's own policy, or with `target_wait_s` the policy on seconds of queued work."""
    options = scaling.model_dump(exclude_none=True, exclude={"target_wait_s"})
    if scaling.target_wait_s is None:
        return AutoscalingConfig(**options)
    kwargs = {
        "queue": name,
        "target_wait_s": scaling.target_wait_s,
        "prefix": settings.redis.prefix,
        "data_dir": str(settings.data_dir),
        "file": str(settings.file) if settings.file else None,
    }
    policy = AutoscalingPolicy(policy_function="serve_app.cluster.autoscaling:WorkPolicy", policy_kwargs=kwargs)
    return AutoscalingConfig(**options, policy=policy)


def _replicas(scaling: AutoscalingConfig, fixed: int | None = None) -> dict[str, Any]:
    """Returns a fixed number where the bounds leave no choice: then replicas need not report their load."""
    if fixed or scaling.min_replicas == scaling.max_replicas:
        return {"num_replicas": fixed or scaling.max_replicas}
    return {"autoscaling_config": scaling}


def _per_node_option(max_replicas_per_node: int | None) -> dict[str, int]:
    """Omits None: it is Ray's default, but invalid in a config file of `serve deploy`."""
    return {} if max_replicas_per_node is None else {"max_replicas_per_node": max_replicas_per_node}


def _bind_auxiliary(
    version: Versioning,
    target: type,
    name: str,
    spec: RewriterSpec | ModeratorSpec | TextEncoderSpec,
    settings: RewriterSettings | ModerationSettings | TextEncoderSettings,
    *,
    target_ongoing_requests: int,
    **options: Any,
) -> serve.Application:
    """Binds a deployment that helps models: it scales up within seconds, and down slowly."""
    scaling = AutoscalingConfig(
        min_replicas=settings.min_replicas,
        max_replicas=settings.max_replicas,
        target_ongoing_requests=target_ongoing_requests,
        upscale_delay_s=1,
        downscale_delay_s=settings.downscale_delay_s,
        look_back_period_s=5,
        metrics_interval_s=1,
    )
    actor = {"ray_actor_options": settings.ray_actor_options, "health_check_timeout_s": 3}
    return version.bind_model(_deployment(target, spec.logs, name=name, **_replicas(scaling), **actor, **options), spec)


def _rewriter(model: RewriterModel | None, version: Versioning) -> serve.Application | None:
    settings = version.settings.rewriter
    if model is None or not settings.enabled:
        return None
    return _bind_auxiliary(
        version,
        PromptRewriter,
        "PromptRewriter",
        rewriter_spec(model, version.settings),
        settings,
        target_ongoing_requests=4,
        max_ongoing_requests=16,
        health_check_period_s=2,
    )


def _moderator(moderators: ModeratorSpec, version: Versioning) -> serve.Application | None:
    """Returns the deployment of the classifiers with weights; None if no classifier has any."""
    settings, (_, spec) = version.settings.moderation, moderators.split()
    if not (spec.text or spec.images):
        return None
    return _bind_auxiliary(
        version,
        Moderator,
        "Moderator",
        spec,
        settings,
        target_ongoing_requests=settings.max_batch,
        max_ongoing_requests=8 * settings.max_batch,
        health_check_period_s=1,
        **_per_node_option(settings.max_replicas_per_node),
    )


def _text_encoder(name: str, settings: TextEncoderSettings, version: Versioning) -> serve.Application:
    return _bind_auxiliary(
        version,
        TextEncoder,
        f"TextEncoder-{name}",
        settings.spec(version.settings.logs.spec(), version.settings.network.proxy),
        settings,
        target_ongoing_requests=settings.max_batch,
        max_ongoing_requests=8 * settings.max_batch,
        health_check_period_s=2,
    )


def _model(
    name: str, catalog: Catalog, version: Versioning, encoders: Mapping[str, serve.Application]
) -> serve.Application:
    settings = version.settings.model(name)
    spec = model_spec(name, catalog, version.settings, version.withheld)
    deployment = _deployment(
        MediaModel,
        spec.logs,
        name=name,
        # The engine's slots: further requests would wait inside the replica, where neither queue nor metrics see them.
        max_ongoing_requests=settings.max_ongoing_requests or spec.max_running,
        **_replicas(_model_autoscaling(name, settings.autoscaling_config, version.settings), settings.num_replicas),
        **_per_node_option(settings.max_replicas_per_node),
        ray_actor_options=settings.ray_actor_options,
        health_check_period_s=settings.health_check_period_s,
        health_check_timeout_s=settings.health_check_timeout_s,
        graceful_shutdown_timeout_s=settings.graceful_shutdown_timeout_s,
    )
    return version.bind_model(deployment, spec, encoders[settings.text_encoder] if settings.text_encoder else None)
