"""Loading of any diffusers pipeline with quantization, offload, attention, compilation and step caches.

Each option that a machine may not support (attention, compilation) falls back with a warning; what would change the
memory that the model needs (quantization, offload) is an error instead.
"""

from __future__ import annotations

import gc
import inspect
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from safetensors import SafetensorError

from deployments.backends.diffusers import denoisers_of
from deployments.backends.pipeline_probe import probe_pipeline
from deployments.checkpoint_files import CheckpointError, pipeline_folder, read_index, single_file
from deployments.contract.model import ModelConfig, Quantization, Trial
from deployments.native_loading import device_for, device_name, precision_for

diffusers: Any = import_module("diffusers")
"""Its lazy exports have no types."""
transformers: Any = import_module("transformers")

log = logging.getLogger(__name__)

_NATIVE_ONLY: Final = (
    *("packed_attention", "render_side", "enlarge", "channels_last", "tile_above", "cfg", "redux"),
    *("distilled", "enhance_noise", "video_guidance", "keyframe_crf"),
)


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    pipeline: Any
    preview_decoder: Any
    interleaves: bool
    """Whether calls may take turns between steps: not where hooks keep state of one call, or move networks."""
    takes_several: bool
    """Whether a call may have several prompts."""
    setup: Mapping[str, str]


def pipeline_class(folder: Path, name: str | None) -> Any:
    """The class `name`, or the one that the checkpoint's index names. Raises CheckpointError for none of diffusers."""
    name = name or str(read_index(folder).get("_class_name"))
    found = getattr(diffusers, name, None)
    if not (inspect.isclass(found) and issubclass(found, DiffusionPipeline)):
        raise CheckpointError(f"{name} is no pipeline of diffusers {diffusers.__version__}")
    return found


def load_pipeline(config: ModelConfig) -> LoadedPipeline:
    """The pipeline on its device, after one call that proves it. Raises CheckpointError."""
    began = time.monotonic()
    defaults = ModelConfig()
    if native := [name for name in _NATIVE_ONLY if getattr(config, name) != getattr(defaults, name)]:
        raise CheckpointError(f"{', '.join(native)}: only native families have these; see docs/models.md")
    device = torch.device(device_for(config.device))
    dtype = precision_for(config.dtype, device)
    folder, local_only = pipeline_folder(config.checkpoint, config.revision)
    kind = pipeline_class(folder, config.pipeline)
    options: dict[str, Any] = {"torch_dtype": dtype, "local_files_only": local_only}
    if config.device_map is not None:
        options["device_map"] = config.device_map
    if config.quantization is not None:
        options |= _quantized(config.quantization, config, folder, dtype)
    try:
        pipeline = kind.from_pretrained(str(folder), **image_processor(folder), **options)
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise CheckpointError(f"{config.checkpoint} can't be loaded: {error}") from error
    pipeline.set_progress_bar_config(disable=True)
    _place(pipeline, config, device)
    denoisers = denoisers_of(pipeline)
    if config.cache is not None:
        for denoiser in denoisers:
            cast(Any, denoiser).enable_cache(_cache(config.cache.method, config.cache.options))
    setup = {
        "pipeline": kind.__name__,
        "device": device_name(device),
        "dtype": f"{dtype}".removeprefix("torch."),
        "quantization": config.quantization.method if config.quantization else "none",
        "offload": config.offload,
    }
    setup["attention"], takes_several = _use_attention(pipeline, denoisers, config)
    setup["compiled"] = _compile(pipeline, denoisers, config) if config.compile else "false"
    log.info("%s: %s; loaded in %.1f s", config.checkpoint, setup, time.monotonic() - began)
    decoder = _preview_decoder(config, device, dtype) if config.preview_decoder else None
    return LoadedPipeline(pipeline, decoder, config.offload == "none" and config.cache is None, takes_several, setup)


def image_processor(folder: Path) -> dict[str, Any]:
    """Qwen's processor without its part for videos, where torchvision is missing, which only that part needs."""
    if read_index(folder).get("processor", [None, None])[1] != "Qwen2VLProcessor" or find_spec("torchvision"):
        return {}

    def initialize(self: Any, image_processor: Any, tokenizer: Any, chat_template: str | None = None) -> None:
        base.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    base = transformers.Qwen2VLProcessor
    images_only = type(base.__name__, (base,), {"__init__": initialize, "__module__": base.__module__})
    return {"processor": images_only.from_pretrained(folder / "processor")}


def _quantized(quantization: Quantization, config: ModelConfig, folder: Path, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of `from_pretrained` that quantize the parts that `quantization` names."""
    index = read_index(folder)
    if unknown := [part for part in quantization.parts if part not in index]:
        raise CheckpointError(f"quantization.parts: {config.checkpoint} has no {', '.join(unknown)}")
    if quantization.method == "gguf":
        assert quantization.file is not None
        part = quantization.parts[0]
        file = quantization.file if Path(quantization.file).is_file() else _hub_file(quantization.file)
        network = getattr(diffusers, index[part][1]).from_single_file(
            str(file),
            config=str(folder),
            subfolder=part,
            torch_dtype=dtype,
            quantization_config=diffusers.GGUFQuantizationConfig(compute_dtype=dtype),
        )
        return {part: network}
    mapping = {
        part: _quantization_config(
            quantization.method, diffusers if index[part][0] == "diffusers" else transformers, dtype
        )
        for part in quantization.parts
    }
    return {"quantization_config": diffusers.PipelineQuantizationConfig(quant_mapping=mapping)}


def _hub_file(name: str) -> Path:
    """`owner/name/path/in/repository.gguf`."""
    owner, repository, path = name.split("/", 2)
    return single_file(f"{owner}/{repository}", path)


def _quantization_config(method: str, library: Any, dtype: torch.dtype) -> Any:
    if method == "nf4":
        return library.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    from torchao import quantization as torchao  # pyright: ignore[reportMissingImports]

    kinds = {"int8": torchao.Int8WeightOnlyConfig, "fp8": torchao.Float8WeightOnlyConfig}
    return library.TorchAoConfig(kinds[method]())


def _place(pipeline: Any, config: ModelConfig, device: torch.device) -> None:
    """Puts the networks where `offload` and `device_map` say."""
    if config.offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif config.offload == "group":
        streams = device.type == "cuda"
        pipeline.enable_group_offload(device, offload_type="leaf_level", use_stream=streams)
    elif config.device_map is None:
        pipeline.to(device)
    vae: Any = getattr(pipeline, "vae", None)
    if hasattr(vae, "enable_slicing"):
        vae.enable_slicing()  # decodes one of a batch after the other
    if config.vae_tiling and hasattr(vae, "enable_tiling"):
        vae.enable_tiling()


def _cache(method: str, options: Mapping[str, Any]) -> Any:
    kinds = {
        "first_block": diffusers.FirstBlockCacheConfig,
        "mag": diffusers.MagCacheConfig,
        "taylor": diffusers.TaylorSeerCacheConfig,
    }
    try:
        return kinds[method](**options)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"cache.options: {error}") from error


def _use_attention(pipeline: Any, denoisers: list[Any], config: ModelConfig) -> tuple[str, bool]:
    """The first name by which the pipeline makes something, by then in use, and whether it takes several prompts."""
    reasons: list[str] = []
    settable = [denoiser for denoiser in denoisers if hasattr(denoiser, "set_attention_backend")]
    for name in config.attention:
        try:
            for denoiser in settable:
                denoiser.set_attention_backend(name)
            takes_several = probe_pipeline(pipeline, config.probe or Trial(), config.pipeline_kwargs)
        except Exception as error:  # backends come from many packages, each failing in its own way
            reason = f"{error}".partition("\n")[0]
            log.warning("attention backend %s is unusable here: %s", name, reason)
            reasons.append(f"{name} ({reason})")
            gc.collect()
            continue
        return (name if settable else "its own"), takes_several
    raise CheckpointError(f"the pipeline makes nothing here: {'; '.join(reasons)}")


def _compile(pipeline: Any, denoisers: list[Any], config: ModelConfig) -> str:
    """Compiles the networks that take steps, or leaves them as they are where that fails."""
    try:
        for denoiser in denoisers:
            if getattr(denoiser, "_repeated_blocks", None):
                denoiser.compile_repeated_blocks(fullgraph=True, dynamic=True)
            else:
                denoiser.compile()
        probe_pipeline(pipeline, config.probe or Trial(), config.pipeline_kwargs)
    except Exception as error:  # compilers raise what they like
        log.warning("the model can't be compiled: %s", f"{error}".partition("\n")[0])
        for module in (module for denoiser in denoisers for module in denoiser.modules()):
            module._compiled_call_impl = None
        torch._dynamo.reset()
        return "failed"
    return "true"


def _preview_decoder(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Any:
    assert config.preview_decoder is not None
    try:
        return diffusers.AutoencoderTiny.from_pretrained(config.preview_decoder, torch_dtype=dtype).to(device)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"preview_decoder: {error}") from error
