"""Loading of any diffusers pipeline with quantization, offload, attention, compilation and step caches.

Options that a machine may not support (attention, compilation) fall back with a warning. Options that change the memory
that the model needs (quantization, offload) raise an error instead.
"""

from __future__ import annotations

import gc
import inspect
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import torch
from diffusers.configuration_utils import ConfigMixin
from diffusers.loaders.single_file_utils import SingleFileComponentError, fetch_diffusers_config
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from safetensors import SafetensorError
from safetensors.torch import load_file

from deployments.backends.diffusers import denoisers_of
from deployments.backends.pipeline_probe import probe_pipeline
from deployments.checkpoint_files import (
    CheckpointError,
    configs_folder,
    network_file,
    pipeline_folder,
    pretrained_folder,
    read_index,
)
from deployments.contract.checkpoint_layout import file_problem, find_variant, list_files, read_components
from deployments.contract.model import (
    NATIVE_ONLY,
    FusedAdapter,
    ModelConfig,
    Precision,
    Quantization,
    SchedulerConfig,
    Trial,
)
from deployments.contract.pipelines import find_pipeline
from deployments.lora.formats import DENOISERS, ENCODERS, AdapterError
from deployments.lora.weights import find_networks, fuse, read_weights
from deployments.native_loading import device_for, device_name, precision_for, undo_compilation, use_fastest

diffusers: Any = import_module("diffusers")
"""Untyped, as its lazy exports have no types."""
transformers: Any = import_module("transformers")

log = logging.getLogger(__name__)

_TIMED_PROBES: Final = 3
"""Calls by which an attention backend is measured."""
_UNREADABLE: Final = (OSError, ValueError, LookupError, ImportError, SafetensorError, SingleFileComponentError)
_VISION_PROCESSORS: Final = ("Qwen2VLProcessor", "Qwen2_5_VLProcessor")


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    pipeline: Any
    preview_decoder: Any
    interleaves: bool
    """True when calls may alternate between steps: no hook keeps state of a call or moves networks."""
    takes_several: bool
    """True when a call takes several prompts."""
    setup: Mapping[str, str]


def pipeline_class(folder: Path, name: str | None) -> Any:
    """Returns the class `name`, or the one in the checkpoint's index. Raises CheckpointError if diffusers has none."""
    name = name or str(read_index(folder).get("_class_name"))
    found = getattr(diffusers, name, None)
    if not (inspect.isclass(found) and issubclass(found, DiffusionPipeline)):
        raise CheckpointError(f"{name} is no pipeline of diffusers {diffusers.__version__}")
    return found


def load_pipeline(config: ModelConfig) -> LoadedPipeline:
    """Returns the pipeline on its device, after a call that proves it. Raises CheckpointError."""
    started_at = time.monotonic()
    if conflict := config.conflict():
        raise CheckpointError(conflict)
    if native := config.differing(NATIVE_ONLY):
        log.warning("%s: %s have no effect, only native families have these", config.checkpoint, ", ".join(native))
    device = torch.device(device_for(config.device))
    dtypes = _dtypes(config, device)
    pipeline = _from_single_file(config, dtypes) if config.is_single_file else _from_folder(config, device, dtypes)
    loaded = prepare_pipeline(pipeline, config)
    log.info("%s: %s; loaded in %.1f s", config.checkpoint, loaded.setup, time.monotonic() - started_at)
    return loaded


def prepare_pipeline(pipeline: Any, config: ModelConfig) -> LoadedPipeline:
    """Moves a loaded pipeline to its device, sets it up by `config`, and proves it by a call."""
    device = torch.device(device_for(config.device))
    dtypes = _dtypes(config, device)
    pipeline.set_progress_bar_config(disable=True)
    name = type(pipeline).__name__
    if (found := find_pipeline(name)) is not None and found.refusal is not None:
        raise CheckpointError(f"{name} can't be served: {found.refusal}")
    _check_weights(pipeline, config)
    if config.scheduler is not None:
        pipeline.scheduler = _scheduler(pipeline, config.scheduler)
    for adapter in config.loras:
        _fuse(pipeline, adapter)
    _place(pipeline, config, device)
    denoisers = denoisers_of(pipeline)
    if config.cache is not None:
        for denoiser in denoisers:
            cast(Any, denoiser).enable_cache(_cache(config.cache.method, config.cache.options))
    setup = {
        "pipeline": name,
        "device": device_name(device),
        "dtype": _describe(dtypes),
        "quantization": config.quantization.method if config.quantization else "none",
        "offload": config.offload,
        "scheduler": type(pipeline.scheduler).__name__ if hasattr(pipeline, "scheduler") else "none",
        "loras": ", ".join(Path(each.file).name for each in config.loras) or "none",
    }
    attention = _AttentionTrial(pipeline, denoisers, config)
    setup["attention"] = attention.use_fastest()
    setup["compiled"] = _compile(pipeline, denoisers, config) if config.compile else "false"
    decoder = _preview_decoder(config, device, dtypes["default"]) if config.preview_decoder else None
    interleaves = config.offload == "none" and config.cache is None
    return LoadedPipeline(pipeline, decoder, interleaves, attention.takes_several, setup)


def _dtypes(config: ModelConfig, device: torch.device) -> dict[str, torch.dtype]:
    """Returns the type of weights by component; `default` is for all others."""
    names: dict[str, Precision] = {"default": "auto"}
    names |= {"default": config.dtype} if isinstance(config.dtype, str) else config.dtype
    return {part: precision_for(name, device) for part, name in names.items()}


def _describe(dtypes: Mapping[str, torch.dtype]) -> str:
    names = {part: f"{dtype}".removeprefix("torch.") for part, dtype in dtypes.items()}
    return ", ".join([names.pop("default"), *(f"{part} {name}" for part, name in sorted(names.items()))])


def _from_folder(config: ModelConfig, device: torch.device, dtypes: Mapping[str, torch.dtype]) -> Any:
    """Loads a pipeline from a folder with a subfolder for each component."""
    folder, local_only = pipeline_folder(config.checkpoint, config.revision, config.weights)
    cls, index = pipeline_class(folder, config.pipeline), read_index(folder)
    if unknown := sorted(dtypes.keys() - index.keys() - {"default"}):
        raise CheckpointError(f"dtype: {config.checkpoint} has no {', '.join(unknown)}")
    options: dict[str, Any] = {
        "torch_dtype": dict(dtypes) if len(dtypes) > 1 else dtypes["default"],
        "local_files_only": local_only,
        "variant": find_variant(list_files(folder), index, config.weights),
    }
    if config.device_map is not None:
        options["device_map"] = config.device_map
    elif str(device) == "cuda" and config.offload == "none" and not cls._load_connected_pipes:
        options["device_map"] = "cuda"  # file by file, without holding everything in the machine's memory
    if config.quantization is not None:
        options |= _quantization_options(config.quantization, config, folder, dtypes)
    options |= _components(config, cls, dtypes)
    return _load(config, cls.from_pretrained, folder, folder, options)


def _from_single_file(config: ModelConfig, dtypes: Mapping[str, torch.dtype]) -> Any:
    """Loads a pipeline whose weights are one file, with the configuration of another checkpoint."""
    file = network_file(config.checkpoint, config.revision)
    if problem := file_problem(file):
        raise CheckpointError(f"checkpoint: {problem}")
    try:
        # Without a name, diffusers recognizes the model by its weights.
        folder = configs_folder(config.config_from or _recognize(file))
    except CheckpointError as error:
        raise CheckpointError(f"config_from must name a folder or repository that is in reach: {error}") from error
    cls = pipeline_class(folder, config.pipeline)
    if not hasattr(cls, "from_single_file"):
        raise CheckpointError(f"pipeline: {cls.__name__} can't be loaded from one file, only from a folder")
    options: dict[str, Any] = {"config": str(folder), "torch_dtype": dtypes["default"]}
    if config.quantization is not None:
        options |= _quantization_options(config.quantization, config, folder, dtypes)
    options |= _components(config, cls, dtypes)
    return _load(config, cls.from_single_file, file, folder, options)


def _recognize(file: Path) -> str:
    """Returns the repository with the configuration for the weights, as diffusers recognizes them."""
    return fetch_diffusers_config(load_file(file))["pretrained_model_name_or_path"]


def _load(config: ModelConfig, load: Callable[..., Any], path: Path, folder: Path, options: Mapping[str, Any]) -> Any:
    try:
        return load(str(path), **image_processor(folder), **options)
    except NotImplementedError as error:  # a tensor without weights
        raise CheckpointError(f"{config.checkpoint} lacks weights that its configuration has: {folder}") from error
    except _UNREADABLE as error:
        raise CheckpointError(f"{config.checkpoint} can't be loaded: {error}") from error


def image_processor(folder: Path) -> dict[str, Any]:
    """Returns Qwen's processors without their part for videos if torchvision is missing, which only that part needs."""
    if find_spec("torchvision"):
        return {}
    return {
        name: _images_only(getattr(transformers, class_name)).from_pretrained(folder / name)
        for name, (_, class_name) in read_components(read_index(folder)).items()
        if class_name in _VISION_PROCESSORS
    }


def _images_only(base: Any) -> Any:
    def initialize(self: Any, image_processor: Any, tokenizer: Any, chat_template: str | None = None) -> None:
        base.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    return type(base.__name__, (base,), {"__init__": initialize, "__module__": base.__module__})


def _quantization_options(
    quantization: Quantization, config: ModelConfig, folder: Path, dtypes: Mapping[str, torch.dtype]
) -> dict[str, Any]:
    """Returns arguments of `from_pretrained` that quantize the parts of `quantization`."""
    index, dtype = read_index(folder), dtypes["default"]
    if unknown := [part for part in quantization.gguf_files or quantization.parts if part not in index]:
        raise CheckpointError(f"quantization.parts: {config.checkpoint} has no {', '.join(unknown)}")
    if quantization.method == "gguf":
        return {
            part: _from_gguf(getattr(diffusers, index[part][1]), file, folder, part, dtypes.get(part, dtype))
            for part, file in quantization.gguf_files.items()
        }
    mapping = {
        part: _quantization_config(
            quantization.method, diffusers if index[part][0] == "diffusers" else transformers, dtype
        )
        for part in quantization.parts
    }
    return {"quantization_config": diffusers.PipelineQuantizationConfig(quant_mapping=mapping)}


def _from_gguf(cls: Any, file: str, folder: Path, part: str, dtype: torch.dtype) -> Any:
    quantization = diffusers.GGUFQuantizationConfig(compute_dtype=dtype)
    options = {"config": str(folder), "subfolder": part, "torch_dtype": dtype, "quantization_config": quantization}
    try:
        return cls.from_single_file(str(network_file(file)), **options)
    except _UNREADABLE as error:
        raise CheckpointError(f"quantization: {file} can't be loaded as the {part}: {error}") from error


def _quantization_config(method: str, library: Any, dtype: torch.dtype) -> Any:
    if method == "nf4":
        return library.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    from torchao import quantization as torchao  # pyright: ignore[reportMissingImports]

    configs = {"int8": torchao.Int8WeightOnlyConfig, "fp8": torchao.Float8WeightOnlyConfig}
    return library.TorchAoConfig(configs[method]())


def _components(config: ModelConfig, cls: Any, dtypes: Mapping[str, torch.dtype]) -> dict[str, Any]:
    """Returns the components that replace those of the checkpoint, by their names in the pipeline."""
    names, _ = cls._get_signature_keys(cls)
    if unknown := sorted(config.components.keys() - names):
        raise CheckpointError(
            f"components: {cls.__name__} has no {', '.join(unknown)}: it has {', '.join(sorted(names))}"
        )
    return {name: _component(name, file, dtypes) for name, file in config.components.items()}


def _component(name: str, checkpoint: str, dtypes: Mapping[str, torch.dtype]) -> Any:
    """Loads one component of a pipeline from the top folder of a checkpoint, or from the folder of its name."""
    folder = pretrained_folder(checkpoint)
    folder = folder / name if (folder / name).is_dir() else folder
    options: dict[str, Any] = {"torch_dtype": dtypes.get(name, dtypes["default"]), "local_files_only": True}
    try:
        if (folder / "tokenizer_config.json").is_file() and name.startswith("tokenizer"):
            return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        settings = json.loads((folder / "config.json").read_text())
        if "_class_name" in settings:
            return getattr(diffusers, settings["_class_name"]).from_pretrained(folder, **options)
        return getattr(transformers, settings["architectures"][0]).from_pretrained(folder, **options)
    except (*_UNREADABLE, AttributeError) as error:
        raise CheckpointError(f"components.{name}: {checkpoint} can't be loaded: {error}") from error


def _scheduler(pipeline: Any, config: SchedulerConfig) -> Any:
    """Returns a scheduler with the configuration of the pipeline's, except for the options."""
    own = getattr(pipeline, "scheduler", None)
    if own is None:
        raise CheckpointError(f"scheduler: {type(pipeline).__name__} has none")
    cls = type(own) if config.name is None else getattr(diffusers, config.name, None)
    if not (inspect.isclass(cls) and issubclass(cls, SchedulerMixin) and issubclass(cls, ConfigMixin)):
        raise CheckpointError(f"scheduler.name: {config.name} is no scheduler of diffusers {diffusers.__version__}")
    known = inspect.signature(cls).parameters
    if unknown := sorted(config.options.keys() - known.keys()):
        raise CheckpointError(
            f"scheduler.options: {cls.__name__} has no {', '.join(unknown)}: it has {', '.join(sorted(known))}"
        )
    try:
        return cls.from_config(own.config, **config.options)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"scheduler.options: {error}") from error


def _fuse(pipeline: Any, adapter: FusedAdapter) -> None:
    """Adds an adapter to the pipeline's weights."""
    networks = find_networks(pipeline, (*DENOISERS, *ENCODERS))
    if adapter.part is not None:
        if adapter.part not in networks:
            raise CheckpointError(f"loras.part: there is no {adapter.part}: there are {', '.join(networks)}")
        name = adapter.part.removesuffix("_2") if adapter.part in DENOISERS else adapter.part
        networks = {name: networks[adapter.part]}
    file = network_file(adapter.file)
    try:
        fuse(read_weights(file.read_bytes(), networks), networks, adapter.scale)
    except AdapterError as error:
        raise CheckpointError(f"loras: {adapter.file}: {error}") from error


def _check_weights(pipeline: Any, config: ModelConfig) -> None:
    """Raises CheckpointError for a component whose files lack weights."""
    for component, module in pipeline.components.items():
        parameters = module.named_parameters() if isinstance(module, torch.nn.Module) else ()
        if missing := next((name for name, parameter in parameters if parameter.is_meta), None):
            raise CheckpointError(f"{config.checkpoint} has no weights for {component}.{missing}")


def _place(pipeline: Any, config: ModelConfig, device: torch.device) -> None:
    """Moves the networks to their devices by `offload` and `device_map`."""
    if config.offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif config.offload == "group":
        streams = device.type == "cuda"
        pipeline.enable_group_offload(device, offload_type="leaf_level", use_stream=streams)
    elif config.device_map is None:
        pipeline.to(device)
    vae: Any = getattr(pipeline, "vae", None)
    # VAEs without the attribute have the methods, too, but these raise.
    if hasattr(vae, "use_slicing"):
        vae.enable_slicing()  # decodes the images of a batch one by one
    if config.vae_tiling and hasattr(vae, "use_tiling"):
        vae.enable_tiling()


def _cache(method: str, options: Mapping[str, Any]) -> Any:
    configs = {
        "first_block": diffusers.FirstBlockCacheConfig,
        "mag": diffusers.MagCacheConfig,
        "taylor": diffusers.TaylorSeerCacheConfig,
    }
    try:
        return configs[method](**options)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"cache.options: {error}") from error


class _AttentionTrial:
    """Tries attention backends with the probe of a pipeline."""

    def __init__(self, pipeline: Any, denoisers: list[Any], config: ModelConfig) -> None:
        self._pipeline = pipeline
        self._config = config
        self._settable = [denoiser for denoiser in denoisers if hasattr(denoiser, "set_attention_backend")]
        self._proven: str | None = None
        """The backend in use, once the probe has succeeded with it."""
        self.takes_several = False
        """True when the probe took several prompts with the backend in use."""

    def use_fastest(self) -> str:
        """Selects the fastest of the configured backends that pass the probe, and returns its name."""
        names = self._config.attention
        usable = use_fastest(
            names if self._settable else names[:1],
            self._use,
            reset=gc.collect,
            seconds=lambda: min(self._seconds() for _ in range(_TIMED_PROBES)),
            failure="the pipeline makes nothing here",
        ).usable
        return usable[0] if self._settable else "its own"

    def _use(self, name: str) -> None:
        if name == self._proven:
            return
        self._proven = None
        for denoiser in self._settable:
            denoiser.set_attention_backend(name)
        self.takes_several = probe_pipeline(self._pipeline, self._config.probe or Trial(), self._config.pipeline_kwargs)
        self._proven = name

    def _seconds(self) -> float:
        started_at = time.perf_counter()
        probe_pipeline(self._pipeline, self._config.probe or Trial(), self._config.pipeline_kwargs)
        return time.perf_counter() - started_at


def _compile(pipeline: Any, denoisers: list[Any], config: ModelConfig) -> str:
    """Compiles the networks that take steps, or restores them if that fails. Returns the fact for `setup`."""
    try:
        for denoiser in denoisers:
            if getattr(denoiser, "_repeated_blocks", None):
                denoiser.compile_repeated_blocks(fullgraph=True, dynamic=True)
            else:
                denoiser.compile()
        probe_pipeline(pipeline, config.probe or Trial(), config.pipeline_kwargs)
    except Exception as error:  # compilers raise any type
        log.warning("the model can't be compiled: %s", f"{error}".partition("\n")[0])
        for denoiser in denoisers:
            undo_compilation(denoiser)
        return "failed"
    return "true"


def _preview_decoder(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Any:
    assert config.preview_decoder is not None
    try:
        return diffusers.AutoencoderTiny.from_pretrained(config.preview_decoder, torch_dtype=dtype).to(device)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"preview_decoder: {error}") from error
