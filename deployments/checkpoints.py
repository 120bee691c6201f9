"""Loads a checkpoint by the name a catalog gives it, ready to run on this machine."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from transformers.utils import logging as transformers_logging

from deployments.checkpoint_files import CheckpointError, pipeline_folder
from deployments.contract.model import ENHANCE_NOISE, Caches, Enlarge, Precision
from deployments.contract.words import Words
from deployments.families.attention import use_attention, use_packed_attention
from deployments.families.clip_family import ClipFamily
from deployments.families.family import Family
from deployments.families.placement import Placement
from deployments.families.registry import family_of

logger = logging.getLogger(__name__)

_CACHES = Caches()


def load(
    checkpoint: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: Precision = "auto",
    attention: Sequence[str] = ("native",),
    packed_attention: Sequence[str] = ("one_by_one",),
    compile: bool = False,
    render_side: int | None = None,
    enlarge: Enlarge = "smooth",
    distilled: bool = False,
    enhance_noise: float = ENHANCE_NOISE,
    caches: Caches = _CACHES,
) -> Family | ClipFamily:
    """The family of `checkpoint`, its networks on `device` and proven to run.

    `revision` is a branch, tag or commit of a hub repository. `device` is a torch device; `auto` takes a GPU where
    there is one. `dtype` `auto` is bfloat16 on GPUs that have it and float32 elsewhere. `attention` names diffusers'
    attention backends; the first one that works here is used. `packed_attention` does so for pictures that take a step
    together, by names of `families.packed.attention.ATTENTIONS`. `compile` compiles the repeated blocks, which slows
    the first steps down and speeds the others up. `render_side` is the shorter side that pictures are rendered with
    before they are scaled to the size asked for (None: at full size), and `enlarge` how. `distilled` and
    `enhance_noise` are for video models, as in Placement. `caches` bounds what is kept for further jobs.

    Raises CheckpointError.
    """
    folder, local_only = pipeline_folder(checkpoint, revision)
    place = torch.device(device_for(device))
    placement = Placement(
        device=place,
        dtype=precision_for(dtype, place),
        local_only=local_only,
        render_side=render_side,
        enlarge=enlarge,
        distilled=distilled,
        enhance_noise=enhance_noise,
        words=Words.of(folder),
        caches=caches,
    )
    transformers_logging.disable_progress_bar()  # a bar is no use in a replica's log
    family = family_of(folder).load(folder, placement)
    chosen = use_attention(family, attention)
    if not isinstance(family, ClipFamily):
        chosen = f"{chosen} and {use_packed_attention(family, packed_attention)}"
    if compile:
        family.transformer.compile_repeated_blocks(fullgraph=True, dynamic=True)
    logger.info("%s: %s on %s, %s, %s attention", checkpoint, type(family).__name__, place, placement.dtype, chosen)
    return family


def for_pictures(family: Family | ClipFamily) -> Family:
    """The family itself, if it makes pictures. Raises CheckpointError."""
    if isinstance(family, ClipFamily):
        raise CheckpointError(f"{type(family).__name__} makes videos, not pictures")
    return family


def device_for(name: str) -> str:
    """A torch device by its name; `auto` is a GPU where there is one."""
    if name != "auto":
        return name
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else accelerator.type


def precision_for(name: Precision, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on GPUs that have it and float32 elsewhere."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]
    halves = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if halves else torch.float32
