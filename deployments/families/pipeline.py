"""The components of diffusers' pipelines, as the families take them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.utils.logging import disable_progress_bar
from safetensors import SafetensorError

from deployments.checkpoint_files import CheckpointError
from deployments.families.placement import Placement
from deployments.families.shared_components import shared_components


def load_pipeline(
    folder: Path,
    placement: Placement,
    kind: Any = DiffusionPipeline,
    without: Iterable[str] = (),
    in_float32: Iterable[str] = (),
) -> Any:
    """The pipeline in `folder`, of the class `kind` (as its index says, if none is given), on its device; the
    components `without` are None, and those `in_float32` are so whatever the others are.

    Raises CheckpointError when a component is missing or broken.
    """
    disable_progress_bar()  # a bar is no use in a replica's log
    dtype = {"default": placement.dtype, **dict.fromkeys(in_float32, torch.float32)}
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": placement.local_only}
    if placement.device.type == "cuda":
        options["device_map"] = "cuda"  # file by file: not all of it through the machine's memory first
    absent = dict.fromkeys(without)
    shared = shared_components(folder, placement.dtype, without=absent)
    try:
        pipeline = kind.from_pretrained(str(folder), **absent, **shared, **options)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} can't be loaded: {error}") from error
    return pipeline.to(placement.device)


def prompt_length(tokenizer: Any, most: int) -> int:
    """Tokens that prompts are padded to and cut off at: `most`, or fewer where the checkpoint was made for fewer.

    Published tokenizers know texts of `most` or longer ones (or name no limit: 1e30). Padding is attended, and costs as
    much as words.
    """
    return min(most, int(tokenizer.model_max_length))
