"""Loading of a diffusers pipeline's components, with the options of a replica."""

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
    """Those of the checkpoint in `folder`, by their names, for its pipeline, but for some. Raises CheckpointError."""
    index = read_index(folder)
    return {
        name: _load_component(getattr(diffusers, index[name][1]), folder / place, dtype)
        for name, place in index.get("_shared", {}).items()
        if name not in without
    }


def _load_component(kind: Any, folder: Path, dtype: torch.dtype) -> Any:
    if not folder.is_dir():
        raise CheckpointError(f"the checkpoint shares a component with others, but there is no {folder}")
    try:
        return kind.from_pretrained(folder, torch_dtype=dtype, use_safetensors=True, local_files_only=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: {error}") from error


class PromptReader(Protocol):
    def __call__(self, prompt: str, images: int, *, placed: bool, tuned: bool) -> str:
        """What the checkpoint gets of a prompt beside so many images. `placed`: a mask or the like says where things
        are. `tuned`: an adapter may have learnt other words."""
        ...


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """A model's settings, resolved for this machine."""

    device: torch.device
    dtype: torch.dtype
    config: ModelConfig = field(default_factory=ModelConfig)
    local_only: bool = True
    """Whether all components must lie in the checkpoint's folder already."""
    redux: Path | None = None
    """Of Flux1: where the components lie that read image prompts; None: in the checkpoint's folder `redux`, if any."""
    read_prompt: PromptReader | None = None
    """How prompts are put before the checkpoint; None: as they are."""
    shared_encoder: SharedEncoder | None = None
    """Of images: what reads prompts in place of the checkpoint's text encoders, which then are not loaded."""


def load_pipeline(
    folder: Path,
    load_options: LoadOptions,
    kind: Any = DiffusionPipeline,
    without: Iterable[str] = (),
    in_float32: Iterable[str] = (),
) -> Any:
    """The pipeline in `folder`, of the class `kind` (as its index says, if none is given), on its device; the
    components `without` are None, and those `in_float32` are so whatever the others are.

    Raises CheckpointError when a component is missing or broken.
    """
    disable_progress_bar()  # a bar is no use in a replica's log
    dtype = {"default": load_options.dtype, **dict.fromkeys(in_float32, torch.float32)}
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": load_options.local_only}
    if load_options.device.type == "cuda":
        options["device_map"] = "cuda"  # file by file: not all of it through the machine's memory first
    options["variant"] = pipeline_variant(folder, load_options.dtype)
    absent = dict.fromkeys(without)
    components = shared_components(folder, load_options.dtype, without=absent)
    try:
        pipeline = kind.from_pretrained(str(folder), **absent, **components, **options)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} can't be loaded: {error}") from error
    return pipeline.to(load_options.device)


def pipeline_variant(folder: Path, dtype: torch.dtype) -> str | None:
    choice = WeightsChoice(f"{dtype}".removeprefix("torch."))
    return find_variant(list_files(folder), load_index(folder), choice)


def prompt_length(tokenizer: Any, most: int) -> int:
    """Tokens that prompts are padded to and cut off at: `most`, or fewer where the checkpoint was made for fewer.

    Published tokenizers know texts of `most` or longer ones (or name no limit: 1e30). Padding is attended, and costs as
    much as words.
    """
    return min(most, int(tokenizer.model_max_length))
