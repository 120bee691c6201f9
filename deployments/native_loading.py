"""Loading of native model families by their checkpoint: family, device, dtype, attention, compilation."""

from __future__ import annotations

import logging
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

import torch
from transformers.utils import logging as transformers_logging

from deployments.backend import NotFinite, OutOfMemory
from deployments.checkpoint_files import CheckpointError, fingerprint, pipeline_folder, read_index
from deployments.contract.checkpoint_layout import TEXT_ENCODERS
from deployments.contract.model import FAMILIES, ModelConfig, Precision
from deployments.families.conditioning import PromptEncoder
from deployments.families.family import Family
from deployments.families.packed.batch import ATTENTIONS
from deployments.families.pipeline import LoadOptions, PromptReader
from deployments.families.probe import SMALL, step_seconds, try_alone, try_together, warm_up
from deployments.families.video_family import VideoFamily

logger = logging.getLogger(__name__)

_FASTER: Final = 0.97
"""Of the time of the best so far: what a later name must not exceed to be preferred, so that chance decides nothing."""
_TYPICAL: Final = 1024
"""Pixels per side of the image that GPUs are measured with."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The backends that work here, the fastest first; that one is in use."""

    usable: Sequence[str]
    unusable: Sequence[str]


def use_attention(family: Family | VideoFamily, names: Sequence[str]) -> Attention:
    """Switches to the fastest of diffusers' attention backends that can draw a small image here.

    A backend may be missing, refuse this device, or fail only when called; each is logged with its reason. Several
    that work are measured by a step; of equals, the first in `names` is taken. Raises CheckpointError when none works.
    """

    def use(name: str) -> None:
        family.transformer.set_attention_backend(name)
        try_alone(family)

    def reset() -> None:
        # By name: diffusers' own reset leaves its global choice as it was.
        family.transformer.set_attention_backend("native")

    return use_fastest(names, use, reset, partial(step_seconds, family, _benchmark_side(family)))


def use_packed_attention(family: Family, names: Sequence[str]) -> Attention:
    """Switches packed batches to the fastest of `names`, of `families.packed.batch.ATTENTIONS`, that gives images as
    they are alone. Logged and raised as by `use_attention`."""

    def use(name: str) -> None:
        if name not in ATTENTIONS:
            raise ValueError(f"it should be one of {', '.join(ATTENTIONS)}")
        family.use_packed_attention(ATTENTIONS[name])
        try_together(family)

    seconds = partial(step_seconds, family, _benchmark_side(family), count=4)
    return use_fastest(names, use, lambda: family.use_packed_attention(ATTENTIONS["sdpa_loop"]), seconds)


def compile_blocks(family: Family | VideoFamily, attentions: Sequence[str]) -> str | None:
    """Compiles the transformer's repeated blocks with the first of `attentions` that can be compiled, draws a small
    image so, and returns its name. None, with nothing compiled, where none can: the reasons are logged."""
    for name in attentions:
        family.transformer.set_attention_backend(name)
        family.transformer.compile_repeated_blocks(fullgraph=True, dynamic=True)
        try:
            try_alone(family)
        except Exception as error:  # compilers raise what they like
            logger.warning("the model can't be compiled with attention %s: %s", name, f"{error}".partition("\n")[0])
            undo_compilation(family.transformer)
            continue
        return name
    family.transformer.set_attention_backend(attentions[0])
    return None


def undo_compilation(transformer: Any) -> None:
    """The transformer's blocks run as they are again."""
    for module in transformer.modules():
        module._compiled_call_impl = None
    torch._dynamo.reset()


def _benchmark_side(family: Family | VideoFamily) -> int:
    return _TYPICAL if family.transformer.device.type == "cuda" else SMALL


def use_fastest(
    names: Sequence[str],
    use: Callable[[str], None],
    reset: Callable[[], object],
    seconds: Callable[[], float],
    failure: str = "no attention backend works here",
) -> Attention:
    """Uses the fastest of `names`; of equals the first. Raises CheckpointError with `failure` when none works."""
    reasons: dict[str, str] = {}
    for name in names:
        try:
            use(name)
        except Exception as error:  # backends come from many packages, each failing in its own way
            reasons[name] = f"{error}".partition("\n")[0]
            logger.warning("attention backend %s is unusable here: %s", name, reasons[name])
            reset()
    usable = [name for name in names if name not in reasons]
    if not usable:
        details = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
        raise CheckpointError(f"{failure}: {details or 'none was named'}")
    if len(usable) > 1:
        durations: dict[str, float] = {}
        for place, name in enumerate(usable):
            use(name)
            durations[name] = seconds() * _FASTER**-place
        logger.info("attention: %s", ", ".join(f"{name} {1000 * s:.1f} ms" for name, s in durations.items()))
        usable.sort(key=durations.__getitem__)
    use(usable[0])
    return Attention(usable, list(reasons))


def is_native(config: ModelConfig) -> bool:
    """Whether a native family serves the checkpoint with these settings. Raises CheckpointError."""
    if config.is_generic:
        return False
    folder, _ = pipeline_folder(config.checkpoint, config.revision, config.weights)
    return str(read_index(folder).get("_class_name")) in FAMILIES


def find_family(folder: Path) -> type[Family] | type[VideoFamily]:
    """The family of the checkpoint in `folder`, by the pipeline class in its index.

    Raises CheckpointError when there is no index, or none that any family here can run.
    """
    pipeline = str(read_index(folder).get("_class_name"))
    if pipeline not in FAMILIES:
        raise CheckpointError(f"{folder} is a {pipeline}; the families here run {', '.join(sorted(FAMILIES))}")
    family: type[Family] | type[VideoFamily] = pkgutil.resolve_name(FAMILIES[pipeline])
    return family


_PRECISIONS: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_GRAMMARS: Final = {"shapes": "deployments.bundled.grammar:read"}
"""What prompts are read by, as the index of a checkpoint names it (`"_grammar"`); no published one does."""
_WORTH: Final = 0.8
"""Of the time of a step: what bfloat16 must not exceed, so that chance decides nowhere, and replicas agree."""
_WARM_SIDE: Final = 1024
"""Pixels of the images that a GPU is warmed up with: what is asked for most."""


class TextEncoder(Protocol):
    """In another process."""

    def __call__(self, prompt: str) -> bytes: ...
    def fingerprint(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    family: Family | VideoFamily
    setup: Mapping[str, str]
    """How it runs here, and why so: for those who look after it."""


def load(config: ModelConfig, text_encoder: TextEncoder | None = None) -> LoadedModel:
    """The native family of the checkpoint, its networks on the device and proven to run: images were made, one and two
    at a time, or a step of a video taken, the way they will be from now on.

    `dtype` `auto` is bfloat16 on GPUs that have it and on processors where a step is much faster so, and float32
    elsewhere. Of `attention` and `packed_attention` the fastest that works here is used. `text_encoder` reads prompts
    in place of the checkpoint's own, which must have the same weights; for images.

    Raises CheckpointError, TextEncoderUnavailable.
    """
    began = time.monotonic()
    if not isinstance(config.dtype, str):
        raise CheckpointError("dtype must be one name for a native family; backend: diffusers takes one by component")
    folder, local_only = pipeline_folder(config.checkpoint, config.revision, config.weights)
    if text_encoder is not None:
        _check_alike(folder, text_encoder)
    place = torch.device(device_for(config.device))
    load_options = LoadOptions(
        device=place,
        dtype=torch.float32,
        config=config,
        local_only=local_only,
        redux=pipeline_folder(config.redux)[0] if config.redux else None,
        read_prompt=_prompt_reader(folder),
        shared_encoder=text_encoder,
    )
    transformers_logging.disable_progress_bar()  # a bar is no use in a replica's log

    def in_precision(chosen: torch.dtype) -> Family | VideoFamily:
        return find_family(folder).load(folder, replace(load_options, dtype=chosen))

    precision, reason, measurement = _precision(config.dtype, place, in_precision)
    family = in_precision(precision)
    if config.cfg is not None and isinstance(family, VideoFamily):
        raise CheckpointError("cfg must be null for a video model, which has `guidance`")
    if (config.video_guidance or config.keyframe_crf is not None) and not isinstance(family, VideoFamily):
        raise CheckpointError("video_guidance and keyframe_crf must be null for a model of images")
    attentions = use_attention(family, config.attention)
    setup = {
        "family": type(family).__name__,
        "device": device_name(place),
        "dtype": f"{precision}".removeprefix("torch."),
        "dtype_because": reason,
    }
    if text_encoder is not None:
        setup["text_encoder"] = "shared"
    unusable = list(attentions.unusable)
    if not isinstance(family, VideoFamily):
        packed_attentions = use_packed_attention(family, config.packed_attention)
        setup["packed_attention"] = packed_attentions.usable[0]
        unusable += packed_attentions.unusable
    if unusable:
        setup["attention_unusable"] = " ".join(unusable)
    loaded_at = time.monotonic()
    side = SMALL if place.type == "cpu" else config.render_side or _WARM_SIDE
    compiled_attention = _compile_and_warm_up(family, attentions.usable, side) if config.compile else None
    if compiled_attention is None:
        _warm_up(family, side, again=False)
    setup["attention"] = compiled_attention or attentions.usable[0]
    setup["compiled"] = "true" if compiled_attention else "failed" if config.compile else "false"
    logger.info(
        "%s: %s%s; loaded in %.1f s, warmed up in %.1f s",
        config.checkpoint,
        ", ".join(f"{name} {value}" for name, value in setup.items()),
        f" ({measurement})" if measurement else "",
        loaded_at - began,
        time.monotonic() - loaded_at,
    )
    return LoadedModel(family, setup)


def load_prompt_encoder(
    checkpoint: str, *, revision: str | None = None, device: str = "auto", dtype: Precision = "auto"
) -> tuple[PromptEncoder[Any], str]:
    """What reads prompts in `checkpoint`, and the fingerprint of its weights; arguments as for `load`, but that `auto`
    is float32 on processors. Raises CheckpointError."""
    folder, local_only = pipeline_folder(checkpoint, revision, TEXT_ENCODERS)
    place = torch.device(device_for(device))
    load_options = LoadOptions(device=place, dtype=precision_for(dtype, place), local_only=local_only)
    transformers_logging.disable_progress_bar()
    family = _sharing_family(folder)
    return family.prompt_encoder(folder, load_options), fingerprint(folder, family.text_parts)


def _prompt_reader(folder: Path) -> PromptReader | None:
    grammar = _GRAMMARS.get(str(read_index(folder).get("_grammar")))
    return None if grammar is None else pkgutil.resolve_name(grammar)


def _check_alike(folder: Path, text_encoder: TextEncoder) -> None:
    if fingerprint(folder, _sharing_family(folder).text_parts) != text_encoder.fingerprint():
        raise CheckpointError(
            f"{folder} has text encoders with other weights than the shared one: let it load its own, by "
            "text_encoder: null"
        )


def _sharing_family(folder: Path) -> type[Family]:
    family = find_family(folder)
    if not hasattr(family, "text_parts"):
        raise CheckpointError(f"{folder} is for videos, which share no text encoder")
    return cast(type[Family], family)


def _compile_and_warm_up(family: Family | VideoFamily, attentions: Sequence[str], side: int) -> str | None:
    """Compiles `family` and warms it up. The attention backend that could be compiled; None where the model runs
    without compilation, since none could."""
    backend = compile_blocks(family, attentions)
    if backend is None:
        return None
    try:
        _warm_up(family, side, again=True)
    except CheckpointError as error:
        logger.warning("compiled, %s; it goes on without compilation", error)
        undo_compilation(family.transformer)
        family.transformer.set_attention_backend(attentions[0])
        return None
    return backend


def _warm_up(family: Family | VideoFamily, side: int, *, again: bool) -> None:
    """Of images of `side` pixels, or of small ones where there is no room for those; `again` with another number of
    tokens.

    The first number may be that of a layer's channels, too, and compiled as such: a network 4096 wide would be compiled
    anew for the first client who asks for anything but a square of 1024 pixels.
    """
    try:
        if isinstance(family, VideoFamily):
            try_alone(family)
            return
        for count in (1, 2):
            try:
                warm_up(family, side, count)
            except OutOfMemory:
                logger.warning("there is no room here for %d images of %d pixels at a time", count, side)
                if count == 1:
                    warm_up(family, SMALL, count)
                break
        if again:
            warm_up(family, 2 * SMALL, 1, height=SMALL)
    except (NotFinite, OutOfMemory, RuntimeError) as error:
        raise CheckpointError(f"it can make no image here: {str(error) or type(error).__name__}") from error
    finally:
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # pools of this thread's stream: encoding and decoding have streams of their own


def for_images(family: Family | VideoFamily) -> Family:
    """The family itself, if it makes images. Raises CheckpointError."""
    if isinstance(family, VideoFamily):
        raise CheckpointError(f"{type(family).__name__} makes videos, not images")
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
        return _PRECISIONS[name]
    halves = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if halves else torch.float32


def _precision(
    name: Precision, device: torch.device, load: Callable[[torch.dtype], Family | VideoFamily]
) -> tuple[torch.dtype, str, str]:
    """The precision to run in, why, and what was measured. A processor may have bfloat16 and yet be hardly faster with
    it, or lack an operation: that is tried."""
    if name != "auto":
        return _PRECISIONS[name], "as configured", ""
    if device.type != "cpu":
        precision = precision_for(name, device)
        return precision, f"the device has {'' if precision is torch.bfloat16 else 'no '}bfloat16", ""
    if not has_bfloat16():
        return torch.float32, "the processor has no bfloat16", ""
    try:
        ratio = step_seconds(load(torch.bfloat16)) / step_seconds(load(torch.float32))
    except RuntimeError as error:
        return torch.float32, "the processor's bfloat16 does not do", str(error)
    measurement = f"a step in bfloat16 takes {ratio:.2f} of the time"
    if ratio <= _WORTH:
        return torch.bfloat16, "a step is much faster so", measurement
    return torch.float32, "half precision is hardly faster", measurement


def has_bfloat16() -> bool:
    """Whether the processor does, in its instructions."""
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def device_name(device: torch.device) -> str:
    """What steps cost is remembered by it: the card, or the processor and its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return str(device)
    return f"{torch.cpu.get_capabilities().get('cpu_name', 'cpu')}, {torch.get_num_threads()} threads"
