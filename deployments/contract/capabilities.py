"""Capabilities of a model, as far as they are known before it is loaded."""

from __future__ import annotations

from typing import Final

from deployments.contract.checkpoint_layout import load_index
from deployments.contract.hub_files import CheckpointKind, find_hub_files, local_checkpoint
from deployments.contract.model import DIFFUSION, ENGINE, FAMILIES, RESTORERS, SIMULATED, ModelConfig
from deployments.contract.pipelines import find_pipeline, takes_several_images

_OPTIONAL: Final = ("negative_prompt", "guidance", "strength", "mask")
_NOT_IN_ENGINES: Final = frozenset(
    ("control_image", "preprocessed_image", "image_prompt", "transparent_bg", "finetune_id", "start_video", "draft")
)
_PIPELINE_PARAMETERS: Final = {
    "negative_prompt": ("negative_prompt",),
    "guidance": ("guidance_scale", "true_cfg_scale", "distilled_guidance_scale", "guider"),
    "strength": ("strength",),
    "mask": ("mask_image", "mask"),
    "control_image": ("control_image",),
}
"""Parameters of a pipeline by the request field that they support; `guider` is a component."""


def unsupported_fields(config: ModelConfig) -> frozenset[str]:
    """Returns the request fields that the model does not take; empty if unknown."""
    if config.engine is not None:
        return _NOT_IN_ENGINES | {each for each in _OPTIONAL if each not in config.engine.names}
    name = pipeline_name(config)
    pipeline = None if name is None else find_pipeline(name)
    if pipeline is None:
        return frozenset()
    taken = pipeline.parameters.keys() | (pipeline.components & {"guider"})
    if not pipeline.guides_by_default and config.pipeline_kwargs.get("true_cfg_scale", 1) <= 1:
        taken -= {"negative_prompt"}
    return frozenset(field for field, names in _PIPELINE_PARAMETERS.items() if taken.isdisjoint(names))


def takes_one_image(config: ModelConfig) -> bool:
    """Returns whether the model is known to take a single input image at most."""
    name = pipeline_name(config)
    return name is not None and not takes_several_images(name)


def pipeline_name(config: ModelConfig) -> str | None:
    """Returns the diffusers pipeline that runs the model; None if unknown or another backend runs it."""
    if config.backend in (ENGINE, *RESTORERS) or config.checkpoint.startswith(SIMULATED):
        return None
    if config.pipeline is not None:
        return config.pipeline
    if config.is_single_file:
        kind, checkpoint, revision = CheckpointKind.CONFIGS, config.config_from, None
    else:
        kind, checkpoint, revision = CheckpointKind.PIPELINE, config.checkpoint, config.revision
    if checkpoint is None:
        return None
    files = find_hub_files(kind, checkpoint, revision, config.weights)
    folder = local_checkpoint(kind, checkpoint) if files is None else files.cached_folder()
    name = (load_index(folder) or {}).get("_class_name") if folder else None
    return name if isinstance(name, str) else None


def runs_natively(config: ModelConfig) -> bool:
    """Returns whether a native family runs the model; False without its checkpoint here."""
    return config.backend == DIFFUSION and not config.is_generic and pipeline_name(config) in FAMILIES
