"""Loading of a diffusers pipeline's components with the options of a replica."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import diffusers
import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.utils.logging import disable_progress_bar
from safetensors import SafetensorError

from deployments.checkpoint_files import CheckpointError, read_index
from deployments.contract.checkpoint_layout import WeightsChoice, find_variant, list_files, load_index
from deployments.contract.model import ModelConfig
from deployments.families.conditioning import SharedEncoder


def shared_components(folder: Path, dtype: torch.dtype, without: Container[str] = ()) -> dict[str, Any]:
    """Loads the components that the checkpoint in `folder` shares with others. Raises CheckpointError."""
    index = read_index(folder)
    return {
        name: _load_component(getattr(diffusers, index[name][1]), folder / path, dtype)
        for name, path in index.get("_shared", {}).items()
        if name not in without
    }


def _load_component(cls: Any, folder: Path, dtype: torch.dtype) -> Any:
    if not folder.is_dir():
        raise CheckpointError(f"the checkpoint shares a component with others, but there is no {folder}")
    try:
        return cls.from_pretrained(folder, torch_dtype=dtype, use_safetensors=True, local_files_only=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: {error}") from error


class PromptReader(Protocol):
    def __call__(self, prompt: str, images: int, *, placed: bool, tuned: bool) -> str:
        """Returns the prompt for the checkpoint. `images` is the number of references, `placed` says that a mask,
        edges or an image prompt give positions, `tuned` that an adapter may know other words."""
        ...


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """A model's settings, resolved for this machine."""

    device: torch.device
    dtype: torch.dtype
    config: ModelConfig = field(default_factory=ModelConfig)
    local_only: bool = True
    """True when all components must be in the checkpoint's folder."""
    redux: Path | None = None
    """Folder of the components that read image prompts for Flux1; None for the checkpoint's folder `redux`, if any."""
    read_prompt: PromptReader | None = None
    """Rewrites prompts for the checkpoint; None leaves them as they are."""
    shared_encoder: SharedEncoder | None = None
    """Encodes prompts of image models in place of the checkpoint's text encoders, which are not loaded then."""


def load_pipeline(
    folder: Path,
    load_options: LoadOptions,
    pipeline_class: Any = DiffusionPipeline,
    without: Iterable[str] = (),
    in_float32: Iterable[str] = (),
) -> Any:
    """Loads the pipeline in `folder` onto its device. Components `without` are None, those `in_float32` have that type.

    By default its index names the class. Raises CheckpointError for a missing or broken component.
    """
    disable_progress_bar()  # useless in a replica's log
    dtype = {"default": load_options.dtype, **dict.fromkeys(in_float32, torch.float32)}
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": load_options.local_only}
    if load_options.device.type == "cuda":
        options["device_map"] = "cuda"  # file by file, without holding everything in the machine's memory
    options["variant"] = pipeline_variant(folder, load_options.dtype)
    absent = dict.fromkeys(without)
    components = shared_components(folder, load_options.dtype, without=absent)
    try:
        pipeline = pipeline_class.from_pretrained(str(folder), **absent, **components, **options)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} can't be loaded: {error}") from error
    return pipeline.to(load_options.device)


def pipeline_variant(folder: Path, dtype: torch.dtype) -> str | None:
    choice = WeightsChoice(f"{dtype}".removeprefix("torch."))
    return find_variant(list_files(folder), load_index(folder), choice)


def prompt_length(tokenizer: Any, max_length: int) -> int:
    """Returns the tokens that prompts are padded and truncated to: `max_length`, or the tokenizer's smaller maximum.

    Published tokenizers have a maximum of `max_length` or more (1e30 for none). Padding is attended and costs as much
    as words.
    """
    return min(max_length, int(tokenizer.model_max_length))
