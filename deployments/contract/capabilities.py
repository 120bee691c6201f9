"""What a model can't take of a request, as far as it is known before the model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from deployments.contract.hub_files import Kind, find_hub_files, local_place
from deployments.contract.model import ENGINE, RESTORERS, SIMULATED, ModelConfig
from deployments.contract.pipelines import find_pipeline

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
_SEVERAL_IMAGES: Final = frozenset(
    (
        *("Flux2Pipeline", "Flux2KleinPipeline", "Flux2KleinKVPipeline", "QwenImageEditPlusPipeline"),
        *("QwenImage21Pipeline", "GlmImagePipeline", "JoyImageEditPlusPipeline", "ZImageOmniPipeline"),
        "BriaFibo2Pipeline",
    )
)
"""Classes of which a list of images is one request with several; to others it is a request for each."""


def takes_several_images(name: str) -> bool:
    """Whether the pipeline class `name` makes one result of several input images."""
    return name in _SEVERAL_IMAGES


def unsupported_fields(config: ModelConfig) -> frozenset[str]:
    """Fields of requests that the model does not take. Empty where that is not known."""
    if config.engine is not None:
        return _NOT_IN_ENGINES | {each for each in _OPTIONAL if each not in config.engine.names}
    name = pipeline_class(config)
    pipeline = None if name is None else find_pipeline(name)
    if pipeline is None:
        return frozenset()
    taken = pipeline.parameters.keys() | (pipeline.components & {"guider"})
    return frozenset(field for field, names in _PIPELINE_PARAMETERS.items() if taken.isdisjoint(names))


def takes_one_image(config: ModelConfig) -> bool:
    """Whether the model is known to make a result of one input image alone."""
    name = pipeline_class(config)
    return name is not None and not takes_several_images(name)


def pipeline_class(config: ModelConfig) -> str | None:
    """The diffusers pipeline that runs the model, as far as it is known here."""
    if config.backend in (ENGINE, *RESTORERS) or config.checkpoint.startswith(SIMULATED):
        return None
    if config.pipeline is not None:
        return config.pipeline
    files = find_hub_files(Kind.PIPELINE, config.checkpoint, config.revision)
    folder = local_place(Kind.PIPELINE, config.checkpoint) if files is None else files.cached_folder()
    index = None if folder is None else Path(folder) / "model_index.json"
    if index is None or not index.is_file():
        return None
    return json.loads(index.read_text()).get("_class_name")
