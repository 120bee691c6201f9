"""What replicas are told to load and how to run it, of the settings and the catalogue: nothing of it is secret."""

from __future__ import annotations

from typing import Final

from deployments.contract.checkpoint import SIMULATED
from deployments.contract.model import DIFFUSION, ModelSpec
from deployments.contract.moderation import ModeratorSpec
from deployments.contract.rewriter import RewriterSpec
from serve_app.config.bound import WithheldOptions
from serve_app.config.catalog import Model, RewriterModel
from serve_app.config.settings import Settings
from serve_app.moderation.settings import ModerationCatalog

_AS_SET: Final = frozenset(
    (
        "device",
        "dtype",
        "compile",
        "threads",
        "render_side",
        "enlarge",
        "channels_last",
        "tile_above",
        "preview_every",
        "preview_interval_s",
        "enhance_noise",
        "keyframe_crf",
        "max_running",
        "max_batch",
        "order",
        "step_goal_s",
        "step_limit_s",
    )
)
"""Of a model's settings, what it is told as it is."""


def of_model(name: str, model: Model, settings: Settings, withheld: WithheldOptions | None) -> ModelSpec:
    """Raises ValueError for a text encoder, or guidance, where nothing reads prompts."""
    chosen = settings.model(name)
    backend, checkpoint = chosen.backend or model.backend, chosen.checkpoint or model.checkpoint
    if (chosen.text_encoder or chosen.true_guidance) and (backend != DIFFUSION or checkpoint.startswith(SIMULATED)):
        reads_none = checkpoint if backend == DIFFUSION else backend
        given = "text_encoder" if chosen.text_encoder else "true_guidance"
        raise ValueError(f"models.{name}.{given} must be null: {reads_none} reads no prompts")
    return ModelSpec(
        backend=backend,
        checkpoint=checkpoint,
        revision=None if chosen.checkpoint else model.revision,
        matting=(chosen.matting or model.matting).spec(),
        sharing=chosen.sharing.spec() if chosen.sharing else None,
        caches=chosen.caches.spec(),
        true_guidance=chosen.true_guidance.spec() if chosen.true_guidance else None,
        redux=None if chosen.checkpoint else model.redux,
        video_guidance=chosen.video_guidance.spec() if chosen.video_guidance else None,
        distilled=model.distilled if chosen.distilled is None else chosen.distilled,
        objects_url=settings.objects_url,
        objects_options=settings.objects.plain_options,
        objects_secrets=withheld,
        attention=tuple(chosen.attention),
        packed_attention=tuple(chosen.packed_attention),
        tracing=settings.tracing.spec(),
        logs=settings.logs.spec(),
        **chosen.model_dump(include=set(_AS_SET)),
    )


def of_rewriter(model: RewriterModel, settings: Settings) -> RewriterSpec:
    chosen = settings.rewriter
    return RewriterSpec(
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


def of_moderator(known: ModerationCatalog, settings: Settings, withheld: WithheldOptions | None) -> ModeratorSpec:
    chosen = settings.moderation
    return ModeratorSpec(
        text=tuple(judge.spec() for judge in chosen.text or known.text),
        pictures=tuple(judge.spec() for judge in chosen.pictures or known.pictures),
        objects_url=settings.objects_url,
        objects_options=settings.objects.plain_options,
        objects_secrets=withheld,
        max_batch=chosen.max_batch,
        threads=chosen.threads,
        logs=settings.logs.spec(),
    )
