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
from deployments.families.probe import SMALL, measure_step, probe_batch, probe_single, warm_up
from deployments.families.video_family import VideoFamily

logger = logging.getLogger(__name__)

_MAX_TIME_SHARE: Final = 0.97
"""Share of the best time so far that a later backend must not exceed to be preferred, so that chance has no effect."""
_BENCHMARK_SIDE: Final = 1024
"""Pixels per side of the image that GPUs are measured with."""


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The attention backends that work on this machine, fastest first. The first is in use."""

    usable: Sequence[str]
    unusable: Sequence[str]


def use_attention(family: Family | VideoFamily, names: Sequence[str]) -> AttentionChoice:
    """Selects the fastest of diffusers' attention backends that can draw a small image here.

    A backend may be missing, refuse this device, or fail when called; the reason is logged. Of equally fast ones, the
    first in `names` wins. Raises CheckpointError if none works.
    """

    def use(name: str) -> None:
        family.transformer.set_attention_backend(name)
        probe_single(family)

    def reset() -> None:
        # By name, as diffusers' own reset keeps its global choice.
        family.transformer.set_attention_backend("native")

    return use_fastest(names, use, reset, partial(measure_step, family, _benchmark_side(family)))


def use_packed_attention(family: Family, names: Sequence[str]) -> AttentionChoice:
    """Selects the fastest of `names` in ATTENTIONS for which images in a batch equal those made alone. Logs and raises
    like `use_attention`."""

    def use(name: str) -> None:
        if name not in ATTENTIONS:
            raise ValueError(f"it should be one of {', '.join(ATTENTIONS)}")
        family.use_packed_attention(ATTENTIONS[name])
        probe_batch(family)

    seconds = partial(measure_step, family, _benchmark_side(family), count=4)
    return use_fastest(names, use, lambda: family.use_packed_attention(ATTENTIONS["sdpa_loop"]), seconds)


def compile_blocks(family: Family | VideoFamily, attentions: Sequence[str]) -> str | None:
    """Compiles the transformer's blocks with the first of `attentions` that allows it, and returns its name. Returns
    None, with nothing compiled, if none does; the reasons are logged."""
    for name in attentions:
        family.transformer.set_attention_backend(name)
        family.transformer.compile_repeated_blocks(fullgraph=True, dynamic=True)
        try:
            probe_single(family)
        except Exception as error:  # compilers raise any type
            logger.warning("the model can't be compiled with attention %s: %s", name, f"{error}".partition("\n")[0])
            undo_compilation(family.transformer)
            continue
        return name
    family.transformer.set_attention_backend(attentions[0])
    return None


def undo_compilation(transformer: Any) -> None:
    """Makes the transformer run without compilation again."""
    for module in transformer.modules():
        module._compiled_call_impl = None
    torch._dynamo.reset()


def _benchmark_side(family: Family | VideoFamily) -> int:
    return _BENCHMARK_SIDE if family.transformer.device.type == "cuda" else SMALL


def use_fastest(
    names: Sequence[str],
    use: Callable[[str], None],
    reset: Callable[[], object],
    seconds: Callable[[], float],
    failure: str = "no attention backend works here",
) -> AttentionChoice:
    """Uses the fastest of `names`; of equally fast ones the first. Raises CheckpointError with `failure` if none
    works."""
    reasons: dict[str, str] = {}
    for name in names:
        try:
            use(name)
        except Exception as error:  # backends come from many packages, which raise any type
            reasons[name] = f"{error}".partition("\n")[0]
            logger.warning("attention backend %s is unusable here: %s", name, reasons[name])
            reset()
    usable = [name for name in names if name not in reasons]
    if not usable:
        details = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
        raise CheckpointError(f"{failure}: {details or 'none was named'}")
    if len(usable) > 1:
        durations: dict[str, float] = {}
        for index, name in enumerate(usable):
            use(name)
            durations[name] = seconds() * _MAX_TIME_SHARE**-index
        logger.info("attention: %s", ", ".join(f"{name} {1000 * s:.1f} ms" for name, s in durations.items()))
        usable.sort(key=durations.__getitem__)
    use(usable[0])
    return AttentionChoice(usable, list(reasons))


def is_native(config: ModelConfig) -> bool:
    """Returns whether a native family serves the checkpoint with these settings. Raises CheckpointError."""
    if config.is_generic:
        return False
    folder, _ = pipeline_folder(config.checkpoint, config.revision, config.weights)
    return str(read_index(folder).get("_class_name")) in FAMILIES


def find_family(folder: Path) -> type[Family] | type[VideoFamily]:
    """Returns the family for the pipeline class in the index of `folder`. Raises CheckpointError without one."""
    pipeline = str(read_index(folder).get("_class_name"))
    if pipeline not in FAMILIES:
        raise CheckpointError(f"{folder} is a {pipeline}; the families here run {', '.join(sorted(FAMILIES))}")
    family: type[Family] | type[VideoFamily] = pkgutil.resolve_name(FAMILIES[pipeline])
    return family


_PRECISIONS: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_GRAMMARS: Final = {"shapes": "deployments.bundled.grammar:read"}
"""Prompt readers by the entry `_grammar` of a checkpoint's index, which no published checkpoint has."""
_MAX_BFLOAT16_TIME_SHARE: Final = 0.8
"""Share of a step's time that bfloat16 must not exceed on processors, so that all replicas decide alike."""
_WARM_SIDE: Final = 1024
"""Pixels per side of the images that a GPU is warmed up with, the most common size."""


class SharedTextEncoder(Protocol):
    """A text encoder in another process."""

    def __call__(self, prompt: str) -> bytes: ...
    def fingerprint(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    family: Family | VideoFamily
    setup: Mapping[str, str]
    """Facts about the running model for operators."""


def load(config: ModelConfig, text_encoder: SharedTextEncoder | None = None) -> LoadedModel:
    """Loads the native family of the checkpoint and proves that it runs: by images, one and two at a time, or a step of
    a video.

    `dtype` `auto` is bfloat16 on GPUs that have it and on processors where it makes a step much faster, and float32
    elsewhere. Uses the fastest working backends of `attention` and `packed_attention`. For images, `text_encoder`
    replaces the checkpoint's own text encoders and must have the same weights.

    Raises CheckpointError, TextEncoderUnavailable.
    """
    started_at = time.monotonic()
    if not isinstance(config.dtype, str):
        raise CheckpointError("dtype must be one name for a native family; backend: diffusers takes one by component")
    folder, local_only = pipeline_folder(config.checkpoint, config.revision, config.weights)
    if text_encoder is not None:
        _check_weights(folder, text_encoder)
    device = torch.device(device_for(config.device))
    load_options = LoadOptions(
        device=device,
        dtype=torch.float32,
        config=config,
        local_only=local_only,
        redux=pipeline_folder(config.redux)[0] if config.redux else None,
        read_prompt=_prompt_reader(folder),
        shared_encoder=text_encoder,
    )
    transformers_logging.disable_progress_bar()  # useless in a replica's log

    def load_family(dtype: torch.dtype) -> Family | VideoFamily:
        return find_family(folder).load(folder, replace(load_options, dtype=dtype))

    precision, reason, measurement = _choose_precision(config.dtype, device, load_family)
    family = load_family(precision)
    if config.cfg is not None and isinstance(family, VideoFamily):
        raise CheckpointError("cfg must be null for a video model, which has `guidance`")
    if (config.video_guidance or config.keyframe_crf is not None) and not isinstance(family, VideoFamily):
        raise CheckpointError("video_guidance and keyframe_crf must be null for a model of images")
    attentions = use_attention(family, config.attention)
    setup = {
        "family": type(family).__name__,
        "device": device_name(device),
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
    side = SMALL if device.type == "cpu" else config.render_side or _WARM_SIDE
    compiled_attention = _compile_and_warm_up(family, attentions.usable, side) if config.compile else None
    if compiled_attention is None:
        _warm_up(family, side, vary_size=False)
    setup["attention"] = compiled_attention or attentions.usable[0]
    setup["compiled"] = "true" if compiled_attention else "failed" if config.compile else "false"
    logger.info(
        "%s: %s%s; loaded in %.1f s, warmed up in %.1f s",
        config.checkpoint,
        ", ".join(f"{name} {value}" for name, value in setup.items()),
        f" ({measurement})" if measurement else "",
        loaded_at - started_at,
        time.monotonic() - loaded_at,
    )
    return LoadedModel(family, setup)


def load_prompt_encoder(
    checkpoint: str, *, revision: str | None = None, device: str = "auto", dtype: Precision = "auto"
) -> tuple[PromptEncoder[Any], str]:
    """Loads only the prompt encoder of `checkpoint`, and returns it with the fingerprint of its weights. `auto` is
    float32 on processors. Raises CheckpointError."""
    folder, local_only = pipeline_folder(checkpoint, revision, TEXT_ENCODERS)
    torch_device = torch.device(device_for(device))
    load_options = LoadOptions(device=torch_device, dtype=precision_for(dtype, torch_device), local_only=local_only)
    transformers_logging.disable_progress_bar()
    family = _image_family(folder)
    return family.prompt_encoder(folder, load_options), fingerprint(folder, family.text_parts)


def _prompt_reader(folder: Path) -> PromptReader | None:
    grammar = _GRAMMARS.get(str(read_index(folder).get("_grammar")))
    return None if grammar is None else pkgutil.resolve_name(grammar)


def _check_weights(folder: Path, text_encoder: SharedTextEncoder) -> None:
    if fingerprint(folder, _image_family(folder).text_parts) != text_encoder.fingerprint():
        raise CheckpointError(
            f"{folder} has text encoders with other weights than the shared one: let it load its own, by "
            "text_encoder: null"
        )


def _image_family(folder: Path) -> type[Family]:
    family = find_family(folder)
    if not hasattr(family, "text_parts"):
        raise CheckpointError(f"{folder} is for videos, which share no text encoder")
    return cast(type[Family], family)


def _compile_and_warm_up(family: Family | VideoFamily, attentions: Sequence[str], side: int) -> str | None:
    """Compiles `family` and warms it up. Returns the attention backend; None if the model runs without compilation."""
    backend = compile_blocks(family, attentions)
    if backend is None:
        return None
    try:
        _warm_up(family, side, vary_size=True)
    except CheckpointError as error:
        logger.warning("compiled, %s; it runs without compilation", error)
        undo_compilation(family.transformer)
        family.transformer.set_attention_backend(attentions[0])
        return None
    return backend


def _warm_up(family: Family | VideoFamily, side: int, *, vary_size: bool) -> None:
    """Makes images of `side` pixels, or small ones if these don't fit; with `vary_size` also one of another size.

    The first number of tokens may equal that of a layer's channels and be compiled as such. A network 4096 wide would
    then be compiled again for the first image that is not a square of 1024 pixels.
    """
    try:
        if isinstance(family, VideoFamily):
            probe_single(family)
            return
        for count in (1, 2):
            try:
                warm_up(family, side, count)
            except OutOfMemory:
                logger.warning("there is no room here for %d images of %d pixels at a time", count, side)
                if count == 1:
                    warm_up(family, SMALL, count)
                break
        if vary_size:
            warm_up(family, 2 * SMALL, 1, height=SMALL)
    except (NotFinite, OutOfMemory, RuntimeError) as error:
        raise CheckpointError(f"it can make no image here: {str(error) or type(error).__name__}") from error
    finally:
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # of this thread's stream, as encoding and decoding have their own


def for_images(family: Family | VideoFamily) -> Family:
    """Returns `family` if it makes images. Raises CheckpointError."""
    if isinstance(family, VideoFamily):
        raise CheckpointError(f"{type(family).__name__} makes videos, not images")
    return family


def device_for(name: str) -> str:
    """Returns the name of a torch device; `auto` is a GPU if there is one."""
    if name != "auto":
        return name
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else accelerator.type


def precision_for(name: Precision, device: torch.device) -> torch.dtype:
    """Returns a torch type; `auto` is bfloat16 on GPUs that have it and float32 elsewhere."""
    if name != "auto":
        return _PRECISIONS[name]
    halves = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if halves else torch.float32


def _choose_precision(
    name: Precision, device: torch.device, load: Callable[[torch.dtype], Family | VideoFamily]
) -> tuple[torch.dtype, str, str]:
    """Returns the precision, the reason, and the measurement. On processors bfloat16 is tried, as it may be hardly
    faster, or lack an operation."""
    if name != "auto":
        return _PRECISIONS[name], "as configured", ""
    if device.type != "cpu":
        precision = precision_for(name, device)
        return precision, f"the device has {'' if precision is torch.bfloat16 else 'no '}bfloat16", ""
    if not has_bfloat16():
        return torch.float32, "the processor has no bfloat16", ""
    try:
        ratio = measure_step(load(torch.bfloat16)) / measure_step(load(torch.float32))
    except RuntimeError as error:
        return torch.float32, "the processor's bfloat16 does not do", str(error)
    measurement = f"a step in bfloat16 takes {ratio:.2f} of the time"
    if ratio <= _MAX_BFLOAT16_TIME_SHARE:
        return torch.bfloat16, "a step is much faster so", measurement
    return torch.float32, "half precision is hardly faster", measurement


def has_bfloat16() -> bool:
    """Returns whether the processor has instructions for bfloat16."""
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def device_name(device: torch.device) -> str:
    """Returns the name under which step costs are stored: the card, or the processor and its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return str(device)
    return f"{torch.cpu.get_capabilities().get('cpu_name', 'cpu')}, {torch.get_num_threads()} threads"
