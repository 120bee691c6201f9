"""Specs of replicas: the arguments of models, the rewriter and the moderator, from catalog and settings."""

from __future__ import annotations

from typing import Final

from deployments.contract.model import (
    DIFFUSERS,
    DIFFUSION,
    ENGINE,
    SIMULATED,
    ModelConfig,
    ModelSpec,
    RewriterSpec,
    Trial,
)
from deployments.contract.moderation import ModeratorSpec
from deployments.contract.workflow import Workflow
from serve_app.config.catalog import Catalog, RewriterModel
from serve_app.config.replicas import WithheldOptions
from serve_app.config.settings import Settings
from serve_app.moderation.settings import ModerationCatalog
from serve_app.schemas.custom import FORMS

_ENGINE_SETTINGS: Final = frozenset(("backend", "engine", "fps", "max_running"))
"""Settings of a model that are read if an inference server runs it."""


def model_spec(name: str, catalog: Catalog, settings: Settings, withheld: WithheldOptions | None) -> ModelSpec:
    """Raises ValueError for settings that the model's backend does not have."""
    model, profile = catalog.models[name], settings.model(name)
    config = model.config(profile)
    if (config.engine is not None) != (config.backend == ENGINE):
        raise ValueError(f"models.{name}.engine is needed for backend: engine, and for no other")
    if config.engine and (excess := config.model_fields_set - _ENGINE_SETTINGS):
        raise ValueError(f"models.{name}.{min(excess)} must be left out: an inference server has settings of its own")
    if (profile.text_encoder or config.cfg) and (
        config.backend != DIFFUSION or config.checkpoint.startswith(SIMULATED)
    ):
        model_name = config.checkpoint if config.backend == DIFFUSION else config.backend
        field = "text_encoder" if profile.text_encoder else "cfg"
        raise ValueError(f"models.{name}.{field} must be null: {model_name} reads no prompts")
    return ModelSpec(
        **{field: getattr(config, field) for field in config.model_fields_set - {"probe"}},
        probe=_probe(name, catalog, config, profile.steps or model.steps),
        workflow=Workflow.load(config.engine.workflow).graph if config.engine and config.engine.workflow else None,
        objects_url=settings.objects_url,
        objects_options=settings.objects.plain_options,
        objects_secrets=withheld,
        tracing=settings.tracing.spec(),
        logs=settings.logs.spec(),
        proxy=settings.network.proxy,
    )


def _probe(name: str, catalog: Catalog, config: ModelConfig, steps: int | None) -> Trial | None:
    """Returns the trial call: the model's steps, at the default size of its first custom endpoint.

    A model that a native family runs has none, unless the settings name one.
    """
    endpoints = [each.fields for each in catalog.endpoints.values() if name in each.models and each.request in FORMS]
    if config.backend not in (DIFFUSION, DIFFUSERS) or not (endpoints or config.is_generic):
        return config.probe
    side = next((fields.side for fields in endpoints if "side" in fields.model_fields_set), None)
    known = {"steps": steps, "width": side, "height": side}
    named = {name: value for name, value in known.items() if value is not None}
    return Trial.model_validate(named | (config.probe or Trial()).model_dump(exclude_unset=True))


def rewriter_tasks(model: RewriterModel | None, settings: Settings) -> frozenset[str]:
    """Returns the jobs of the rewriter, by their names in `rewriter.asked_for`."""
    if model is None or not settings.rewriter.enabled:
        return frozenset()
    return frozenset(settings.rewriter.asked_for) - (frozenset() if model.edit_instruction else {"edits"})


def rewriter_spec(model: RewriterModel, settings: Settings) -> RewriterSpec:
    return RewriterSpec(
        **model.on_profile(settings.rewriter).model_dump(exclude={"memory"}),
        device=settings.rewriter.device,
        dtype=settings.rewriter.dtype,
        logs=settings.logs.spec(),
        proxy=settings.network.proxy,
    )


def moderator_spec(defaults: ModerationCatalog, settings: Settings, withheld: WithheldOptions | None) -> ModeratorSpec:
    own = settings.moderation
    return ModeratorSpec(
        text=tuple(classifier.spec() for classifier in own.text or defaults.text),
        images=tuple(classifier.spec() for classifier in own.images or defaults.images),
        objects_url=settings.objects_url,
        objects_options=settings.objects.plain_options,
        objects_secrets=withheld,
        max_batch=own.max_batch,
        threads=own.threads,
        logs=settings.logs.spec(),
        proxy=settings.network.proxy,
    )
