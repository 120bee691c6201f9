"""What a model can't take of a request, as far as it is known before the model is loaded."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from deployments.contract.hub_files import Kind, find_hub_files, local_place
from deployments.contract.model import ENGINE, RESTORERS, SIMULATED, ModelConfig

_CLASS: Final = re.compile(r"^class (\w+)\b", re.MULTILINE)
_OPTIONAL: Final = ("negative_prompt", "guidance", "strength", "mask")
_NOT_IN_ENGINES: Final = frozenset(
    ("control_image", "preprocessed_image", "image_prompt", "transparent_bg", "finetune_id", "start_video", "draft")
)
_PIPELINE_PARAMETERS: Final = {
    "negative_prompt": ("negative_prompt",),
    "guidance": ("guidance_scale", "true_cfg_scale", "distilled_guidance_scale"),
    "strength": ("strength",),
    "mask": ("mask_image", "mask"),
    "control_image": ("control_image",),
}
"""By a field of requests, the parameters of a pipeline that take it."""


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
    parameters = None if name is None else pipeline_parameters(name)
    if parameters is None:
        return frozenset()
    return frozenset(field for field, names in _PIPELINE_PARAMETERS.items() if parameters.isdisjoint(names))


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


@cache
def pipeline_parameters(name: str) -> frozenset[str] | None:
    """The parameters of the `__call__` of the pipeline class `name`, by its source, as importing it would import
    torch; None where diffusers has no such class."""
    file = _sources().get(name)
    if file is None:
        return None
    node = next(
        each for each in ast.parse(file.read_text()).body if isinstance(each, ast.ClassDef) and each.name == name
    )
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__call__":
            arguments = each.args
            return frozenset(arg.arg for arg in (*arguments.args, *arguments.kwonlyargs) if arg.arg != "self")
    for base in node.bases:
        if isinstance(base, ast.Name) and (inherited := pipeline_parameters(base.id)) is not None:
            return inherited
    return None


@cache
def _sources() -> dict[str, Path]:
    """The files of all pipelines, by the classes in them."""
    spec = find_spec("diffusers")
    assert spec is not None
    assert spec.origin is not None
    files = sorted((Path(spec.origin).parent / "pipelines").rglob("pipeline_*.py"))
    return {name: file for file in files for name in _CLASS.findall(file.read_text())}
