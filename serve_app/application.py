"""The Ray Serve application: binds all deployments.

`app` is for Ray's own commands: `serve run serve_app.application:app config=/etc/gen-serve/config.yaml`. Ray reads the
type of its argument from the signature, so this file's annotations are types, not texts. `serve build` takes none that
has arguments: `built` is the application of the settings that `GEN_CONFIG` names.
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
_NOT_HTTP: Final = ("dispatcher", "moderation", "text_encoders", "ray")
"""Of the settings, what the ingress does not read."""


class Args(BaseModel):
    """What `app` takes, on the command line of `serve run` or as `args` in a config file of Serve's."""

    model_config = ConfigDict(extra="forbid")

    config: Path
    """The settings file. Best an absolute path, which every node has."""
    revision: Annotated[str, Field(max_length=100)] = ""
    """Any word. `serve deploy` looks at arguments, not into the file: with another one everything is built anew."""


def app(args: Args) -> serve.Application:
    """The application that a settings file describes. Raises FileNotFoundError, or ValueError naming what is missing.

    No secret may be among the arguments, which Serve keeps and shows: see `config/replicas.py`.
    """
    return build(complete(all_settings.load(args.config)), args.revision)


def __getattr__(name: str) -> serve.Application:
    """`built`, once it is asked for: nobody else who imports this has settings at hand."""
    if name != "built":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not (config := os.environ.get("GEN_CONFIG")):
        raise ValueError("GEN_CONFIG is not set: it names the settings file of serve_app.application:built")
    return app(Args(config=Path(config)))


def build(settings: Settings, revision: str = "") -> serve.Application:
    """The Ray Serve application that `settings` describes. With another `revision` every replica is restarted."""
    catalog = catalogs.load(settings)
    version = Versioning(settings, revision)
    encoders = {name: _text_encoder(name, chosen, version) for name, chosen in settings.text_encoders.items()}
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
    sections = set(Settings.model_fields) - set(_NOT_HTTP)
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
        # Arguments only so that they belong to the application; all meet in Redis.
        dispatcher,
        webhook_sender,
        # And these so that the version tells of them: the app has them already.
        bound,
        catalog,
        reads=sections,
    )


class Versioning:
    """Of the deployments of one application: a replica is restarted where its deployment's version is another."""

    def __init__(self, settings: Settings, revision: str) -> None:
        self.settings = settings
        self.withheld = WithheldOptions.from_settings(settings)
        """Of the object store, for models and moderators."""
        self._revision = revision

    def bind(self, deployment: serve.Deployment, *args: object, reads: Collection[str]) -> serve.Application:
        """`reads` are the sections of the settings that it reads."""
        settings = self.settings
        key = settings.sealing_keys[0] if settings.has_sealing_keys else None
        version = deployment_version(args, reads, secret_values(settings), key, self._revision)
        return ray_internals.with_version(deployment, version).bind(*args)

    def bind_model(self, deployment: serve.Deployment, *args: object) -> serve.Application:
        """One that knows nothing of the service, but for the object store."""
        return self.bind(deployment, *args, reads=("objects",))


async def replicas(name: str | None = None) -> dict[str, ReplicaCounts]:
    """Of each deployment of that application, or of the one that asks."""
    return await asyncio.to_thread(ray_internals.count_replicas, name or serve.get_replica_context().app_name)


def _ingress_app(settings: BoundSettings, catalog: Catalog) -> Callable[[], "FastAPI"]:
    def build() -> "FastAPI":
        # Where it runs: whoever only binds it would wait a second for this import, and keep it.
        from serve_app.api.app import replica_app

        return replica_app(settings.settings(), catalog, replicas)

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


def _model_autoscaling(name: str, chosen: AutoscalingSettings, settings: Settings) -> AutoscalingConfig:
    """Ray's own policy, or with `target_wait_s` the one on seconds of work."""
    options = chosen.model_dump(exclude_none=True, exclude={"target_wait_s"})
    if chosen.target_wait_s is None:
        return AutoscalingConfig(**options)
    kwargs = {
        "queue": name,
        "target_wait_s": chosen.target_wait_s,
        "prefix": settings.redis.prefix,
        "data_dir": str(settings.data_dir),
        "file": str(settings.file) if settings.file else None,
    }
    policy = AutoscalingPolicy(policy_function="serve_app.cluster.autoscaling:WorkPolicy", policy_kwargs=kwargs)
    return AutoscalingConfig(**options, policy=policy)


def _replicas(scaling: AutoscalingConfig, fixed: int | None = None) -> dict[str, Any]:
    """The options that say how many; where there is nothing to decide, nobody need report the load every second."""
    if fixed or scaling.min_replicas == scaling.max_replicas:
        return {"num_replicas": fixed or scaling.max_replicas}
    return {"autoscaling_config": scaling}


def _per_node_option(max_replicas_per_node: int | None) -> dict[str, int]:
    """None is what Ray does by itself, but no value that a file for `serve deploy` may have."""
    return {} if max_replicas_per_node is None else {"max_replicas_per_node": max_replicas_per_node}


def _rewriter(model: RewriterModel | None, version: Versioning) -> serve.Application | None:
    settings, chosen = version.settings, version.settings.rewriter
    if model is None or not chosen.enabled:
        return None
    spec = rewriter_spec(model, settings)
    deployment = _deployment(
        PromptRewriter,
        spec.logs,
        name="PromptRewriter",
        max_ongoing_requests=16,
        **_replicas(_autoscaling(chosen, target_ongoing_requests=4)),
        ray_actor_options=chosen.ray_actor_options,
        health_check_period_s=2,
        health_check_timeout_s=3,
    )
    return version.bind_model(deployment, spec)


def _moderator(moderators: ModeratorSpec, version: Versioning) -> serve.Application | None:
    """Of the classifiers with weights; None where there is none."""
    chosen, (_, spec) = version.settings.moderation, moderators.split()
    if not (spec.text or spec.images):
        return None
    deployment = _deployment(
        Moderator,
        spec.logs,
        name="Moderator",
        max_ongoing_requests=8 * chosen.max_batch,
        **_replicas(_autoscaling(chosen, target_ongoing_requests=chosen.max_batch)),
        ray_actor_options=chosen.ray_actor_options,
        **_per_node_option(chosen.max_replicas_per_node),
        health_check_period_s=1,
        health_check_timeout_s=3,
    )
    return version.bind_model(deployment, spec)


def _text_encoder(name: str, chosen: TextEncoderSettings, version: Versioning) -> serve.Application:
    spec = chosen.spec(version.settings.logs.spec(), version.settings.network.proxy)
    deployment = _deployment(
        TextEncoder,
        spec.logs,
        name=f"TextEncoder-{name}",
        max_ongoing_requests=8 * chosen.max_batch,
        **_replicas(_autoscaling(chosen, target_ongoing_requests=chosen.max_batch)),
        ray_actor_options=chosen.ray_actor_options,
        health_check_period_s=2,
        health_check_timeout_s=3,
    )
    return version.bind_model(deployment, spec)


def _model(
    name: str, catalog: Catalog, version: Versioning, encoders: Mapping[str, serve.Application]
) -> serve.Application:
    settings = version.settings
    chosen = settings.model(name)
    spec = model_spec(name, catalog, settings, version.withheld)
    deployment = _deployment(
        MediaModel,
        spec.logs,
        name=name,
        # Exactly the engine's slots: what came on top would wait inside the replica, where nobody can see it.
        max_ongoing_requests=chosen.max_ongoing_requests or spec.max_running,
        **_replicas(_model_autoscaling(name, chosen.autoscaling_config, settings), chosen.num_replicas),
        **_per_node_option(chosen.max_replicas_per_node),
        ray_actor_options=chosen.ray_actor_options,
        health_check_period_s=chosen.health_check_period_s,
        health_check_timeout_s=chosen.health_check_timeout_s,
        graceful_shutdown_timeout_s=chosen.graceful_shutdown_timeout_s,
    )
    return version.bind_model(deployment, spec, encoders[chosen.text_encoder] if chosen.text_encoder else None)
