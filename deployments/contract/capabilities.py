"""What a model can't take of a request, as far as it is known before the model is loaded."""

from __future__ import annotations

from typing import Final

from deployments.contract.checkpoint_layout import load_index
from deployments.contract.hub_files import Kind, find_hub_files, local_place
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
"""By a field of requests, the parameters of a pipeline that take it, or the component."""


def unsupported_fields(config: ModelConfig) -> frozenset[str]:
    """Fields of requests that the model does not take. Empty where that is not known."""
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
    """Tells whether the model is known to make a result of one input image alone."""
    name = pipeline_name(config)
    return name is not None and not takes_several_images(name)


def pipeline_name(config: ModelConfig) -> str | None:
    """The diffusers pipeline that runs the model, as far as it is known here."""
    if config.backend in (ENGINE, *RESTORERS) or config.checkpoint.startswith(SIMULATED):
        return None
    if config.pipeline is not None:
        return config.pipeline
    if config.is_single_file:
        kind, checkpoint, revision = Kind.CONFIGS, config.config_from, None
    else:
        kind, checkpoint, revision = Kind.PIPELINE, config.checkpoint, config.revision
    if checkpoint is None:
        return None
    files = find_hub_files(kind, checkpoint, revision, config.weights)
    folder = local_place(kind, checkpoint) if files is None else files.cached_folder()
    name = (load_index(folder) or {}).get("_class_name") if folder else None
    return name if isinstance(name, str) else None


def runs_natively(config: ModelConfig) -> bool:
    """Returns whether a native family runs the model; False where its checkpoint is not here."""
    return config.backend == DIFFUSION and not config.is_generic and pipeline_name(config) in FAMILIES
