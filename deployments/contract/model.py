"""Specs of replicas: all that a deployment gets from the service's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, field_validator, model_validator

from deployments.contract.checkpoint_layout import SAFETENSORS, WeightsChoice
from deployments.contract.objects import OptionsHere
from deployments.contract.strict_settings import Device, StrictSettings
from deployments.proxies import ENVIRONMENT
from deployments.telemetry.logs import DEFAULT_LOGS, LogSpec
from deployments.telemetry.tracing import TracingSpec

Precision: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
Enlarge: TypeAlias = Literal["smooth", "sharp"]
Order: TypeAlias = Literal["aged", "oldest", "deadline"]
"""Who takes steps first, as `engine/scheduler.py` has it."""

ENHANCE_NOISE: Final = 0.909375
"""Of the latents of a draft that is drawn anew: where LTX-2 begins its second stage."""

DIFFUSION: Final = "diffusion"
RESTORERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "telea": "deployments.restorers:Telea",
        "deconvolution": "deployments.restorers:Deconvolution",
        "onnx": "deployments.onnx_networks:OnnxRestorer",
    }
)
"""By the names that configurations have for them, where restorers are. Adding one is a file and a line here."""
FAMILIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "FluxPipeline": "deployments.families.flux1:Flux1",
        "FluxKontextPipeline": "deployments.families.flux1:Flux1",
        "FluxFillPipeline": "deployments.families.flux1:Flux1",
        "FluxControlPipeline": "deployments.families.flux1:Flux1",
        "Flux2Pipeline": "deployments.families.flux2:Flux2",
        "Flux2KleinPipeline": "deployments.families.flux2:Flux2",
        "Flux2KleinKVPipeline": "deployments.families.flux2:Flux2KV",
        "Flux3DistilledModularPipeline": "deployments.families.flux3:Flux3",
        "LTX2Pipeline": "deployments.families.ltx2:Ltx2",
        "LTX2ConditionPipeline": "deployments.families.ltx2:Ltx2",
    }
)
"""Native families by the pipeline class in a checkpoint's index."""
DIFFUSERS: Final = "diffusers"
ENGINE: Final = "engine"
BACKENDS: Final = (DIFFUSION, DIFFUSERS, ENGINE, *RESTORERS)
"""What a model can be run by. `diffusion` takes the native family of a checkpoint, else `diffusers`."""

BACKGROUND_REMOVERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "grabcut": "deployments.matting:GrabCut",
        "onnx": "deployments.onnx_networks:OnnxBackgroundRemover",
    }
)
"""The same for what cuts the subject out of an image."""
NETWORKS: Final = frozenset(("onnx",))
"""Of both, those that read a network; the others are algorithms, without weights."""


class MattingConfig(StrictSettings):
    """What cuts the subject out of an image where its background is to go."""

    backend: str = "grabcut"
    """One of BACKGROUND_REMOVERS."""
    checkpoint: str | None = None
    """A file, or `owner/name/file` on the hub, for backends that read one."""
    revision: str | None = None
    device: Device = "auto"

    @model_validator(mode="after")
    def _known_backend(self) -> MattingConfig:
        if self.backend not in BACKGROUND_REMOVERS:
            raise ValueError(f"backend {self.backend!r} must be one of {', '.join(BACKGROUND_REMOVERS)}")
        return self


class CacheSizes(StrictSettings):
    """How much a replica keeps of what may serve another job, on the model's device. 0 keeps nothing."""

    prompts_mb: int = Field(default=256, ge=0)
    """Prompts as the text encoders read them."""
    references_mb: int = Field(default=256, ge=0)
    """Reference images as the autoencoder reads them."""
    adapters_mb: int = Field(default=1024, ge=0)
    """Weights of tuned models, beside those in use."""


class Sharing(StrictSettings):
    """How a model shares a device with others of the same machine."""

    device: str = Field(pattern="^[A-Za-z0-9_.-]+$")
    """Any name, the same for all that share it."""
    priority: Literal["high", "low"]
    """While a model of high priority has work, one of low priority waits before each step."""
    max_wait_s: float = Field(default=10.0, ge=0)
    """The longest such wait."""
    turn_s: float | None = Field(default=None, gt=0)
    """How long a model keeps a device with room for one at a time, while others wait. Null: there is room for all."""


Unit = Annotated[float, Field(ge=0, le=1)]


class CfgConfig(StrictSettings):
    """Classifier-free guidance: `uncond + scale * (cond - uncond)`, two forwards, at flow times in `interval`."""

    scale: float = Field(ge=1, le=100, allow_inf_nan=False)
    interval: tuple[Unit, Unit] = (0.0, 1.0)
    """Flow times, the smaller one first: 1 is noise alone, 0 the finished image."""

    @field_validator("interval")
    @classmethod
    def _in_order(cls, interval: tuple[float, float]) -> tuple[float, float]:
        if interval[0] > interval[1]:
            raise ValueError("the first flow time must be at most the second: [0.5, 0.9]")
        return interval


class VideoGuidance(StrictSettings):
    """The parts of LTX-2's guidance beside CFG of the image, by default those of diffusers' pipeline.

    STG goes away from what the network makes without self-attention in `stg_blocks`, modality guidance from what it
    makes of image and sound apart: each asks it once more a step, unless `stg` is 0 or `modality` 1.
    """

    audio: float = Field(default=7.0, ge=1, le=100)
    """CFG of the sound."""
    stg: float = Field(default=1.0, ge=0, le=100)
    stg_blocks: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(28,), min_length=1)
    modality: float = Field(default=3.0, ge=1, le=100)
    rescale: float = Field(default=0.7, ge=0, le=1)
    """How far the contrast of what is guided returns to that of the prompt alone."""


class Quantization(StrictSettings):
    """Weights in fewer bits, of some networks of a pipeline."""

    method: Literal["fp8", "int8", "nf4", "gguf"]
    """fp8 and int8 by torchao, nf4 by bitsandbytes, gguf from a file."""
    parts: tuple[str, ...] = Field(default=("transformer",), min_length=1)
    """Components by their names in the checkpoint's index."""
    file: str | None = None
    """Of gguf: a file, or `owner/name/path/to/file.gguf` on the hub."""
    files: dict[str, str] = Field(default_factory=dict)
    """The gguf files of several parts, by their names."""

    @model_validator(mode="after")
    def _check_files(self) -> Quantization:
        if self.method != "gguf" and (self.file is not None or self.files):
            raise ValueError("file and files are for gguf only")
        if self.method == "gguf" and (self.file is None) != bool(self.files):
            raise ValueError("either file is needed for gguf, or files: {transformer: a.gguf, transformer_2: b.gguf}")
        if self.file is not None and len(self.parts) > 1:
            raise ValueError("a gguf file holds one of the parts: files has one for each")
        if self.files and "parts" in self.model_fields_set:
            raise ValueError("parts must be left out where files names them")
        return self

    @property
    def gguf_files(self) -> Mapping[str, str]:
        """The gguf file of each part."""
        return self.files or ({} if self.file is None else {self.parts[0]: self.file})


class StepCache(StrictSettings):
    """Reuse of a network's results from one step to the next, by diffusers' cache hooks."""

    method: Literal["first_block", "mag", "taylor"]
    options: dict[str, Any] = Field(default_factory=dict)
    """Those of diffusers' configuration of the method, such as `threshold`."""


EngineKind: TypeAlias = Literal["vllm-omni", "sglang", "gen-serve"]
_SAMPLING: Final = {"seed": "seed", "steps": "num_inference_steps", "guidance": "guidance_scale"}
_SAMPLING_AND_FRAMES: Final = {**_SAMPLING, "negative_prompt": "negative_prompt", "frames": "num_frames", "fps": "fps"}
ENGINE_FIELDS: Final[Mapping[EngineKind, Mapping[str, str]]] = MappingProxyType(
    {
        "vllm-omni": {**_SAMPLING_AND_FRAMES, "mask": "mask_image", "audio": "generate_sound"},
        "sglang": _SAMPLING_AND_FRAMES,
        "gen-serve": {"seed": "seed", "steps": "steps", "guidance": "guidance", "mask": "mask", "seconds": "seconds"},
    }
)
"""What engines call the parameters of a job in their form of OpenAI's API; they lack those that are missing."""


class EngineConfig(StrictSettings):
    """An inference server with OpenAI's routes for images and videos, and how it is run."""

    kind: EngineKind
    """Whose form of the API it speaks."""
    url: str | tuple[str, ...] = ()
    """Where it runs. Of several engines each job goes to the one with the fewest."""
    command: str | None = None
    """Starts it as a child of the replica, on the replica's GPUs; `{port}` stands for the port to listen on."""
    model: str | None = None
    """What requests say in `model`."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further fields of every request."""
    fields: dict[str, str | None] = Field(default_factory=dict)
    """Other names of its fields, by ours: seed, steps, guidance, negative_prompt, strength, mask, frames, seconds, fps,
    audio. Null: it has none."""
    api_key_file: Path | None = None
    """Holds the token that it asks for."""
    start_timeout_s: float = Field(default=1800.0, gt=0)
    """How long the command may take until the engine is healthy."""
    health_timeout_s: float = Field(default=30.0, gt=0)
    """How long its health check may fail until its jobs are given to other attempts, and the command is run anew."""

    @model_validator(mode="after")
    def _check_location(self) -> EngineConfig:
        if (self.command is None) == (not self.urls):
            raise ValueError("either url or command is needed")
        if self.command is not None and "{port}" not in self.command:
            raise ValueError("command must say {port} where the port to listen on goes")
        if strange := [url for url in self.urls if not url.startswith(("http://", "https://"))]:
            raise ValueError(f"url must begin with http:// or https://, not {strange[0]}")
        if unknown := self.fields.keys() - _ENGINE_PARAMETERS:
            raise ValueError(f"fields: {', '.join(sorted(unknown))} must be of {', '.join(sorted(_ENGINE_PARAMETERS))}")
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        urls = (self.url,) if isinstance(self.url, str) else self.url
        return tuple(url.rstrip("/") for url in urls if url)

    @property
    def names(self) -> Mapping[str, str]:
        """What the engine calls the parameters of a job; those missing it does not take."""
        names = {**ENGINE_FIELDS[self.kind], **self.fields}
        return {parameter: name for parameter, name in names.items() if name is not None}


GENERIC_ONLY: Final = (
    *("config_from", "pipeline", "pipeline_kwargs", "quantization", "offload"),
    *("device_map", "cache", "vae_tiling", "preview_decoder"),
)
"""Settings of diffusers' own pipelines, which native families don't have."""
NATIVE_ONLY: Final = (
    *("packed_attention", "render_side", "enlarge", "channels_last", "tile_above", "cfg", "redux"),
    *("distilled", "enhance_noise", "video_guidance", "keyframe_crf"),
)
"""Settings of native families, which diffusers' own pipelines don't have."""
_ENGINE_PARAMETERS: Final = {name for names in ENGINE_FIELDS.values() for name in names} | {"strength"}


class Trial(StrictSettings):
    """The call by which a pipeline proves at load that it works here."""

    width: int = Field(default=256, ge=16)
    height: int = Field(default=256, ge=16)
    frames: int = Field(default=9, ge=1)
    steps: int = Field(default=2, ge=1)
    """The steps that are asked for. Where the pipeline can be interrupted, two of them are taken."""


class ModelConfig(StrictSettings):
    """How a replica loads a model and runs it: from YAML to the loader in one piece."""

    backend: str = DIFFUSION
    """diffusion (the checkpoint's native family, else its diffusers pipeline), diffusers (always the pipeline), or
    onnx, telea, deconvolution, which restore an image in one pass, or engine, an inference server behind HTTP."""
    engine: EngineConfig | None = None
    """Of the engine backend."""
    checkpoint: str = ""
    """A hub id, a folder, `bundled/<name>`, one `.safetensors` file, here or `owner/name/file` on the hub, or
    `simulated/<n>ms`: no model, n ms a step. For restorers a file, and empty for those that read none."""
    config_from: str | None = None
    """The checkpoint with configuration and tokenizers for weights in one file. Null: the repository that diffusers
    takes the weights for."""
    revision: str | None = None
    """Branch, tag or commit of a hub repository. Null: its newest."""
    device: Device = "auto"
    dtype: Precision | dict[str, Precision] = "auto"
    """One for all components, or for the diffusers backend by component: `{default: bfloat16, vae: float32}`."""
    attention: tuple[str, ...] = Field(default=("native",), min_length=1)
    packed_attention: tuple[str, ...] = ("sdpa_loop",)
    compile: bool = False
    threads: int | None = Field(default=None, ge=1)
    render_side: int | None = Field(default=None, ge=32)
    enlarge: Enlarge = "smooth"
    channels_last: bool = False
    tile_above: int | None = Field(default=None, ge=64, multiple_of=64)
    cfg: CfgConfig | None = None
    redux: str | None = None
    """Of a Flux1 model: the checkpoint that reads image prompts. Null: a folder of that name in the model's own."""
    distilled: bool = False
    enhance_noise: float = Field(default=ENHANCE_NOISE, gt=0, le=1)
    video_guidance: VideoGuidance | None = None
    keyframe_crf: int | None = Field(default=None, ge=0, le=51)
    pipeline: str | None = None
    """Of the diffusers backend: a pipeline class of diffusers. Null: the one that the checkpoint names."""
    pipeline_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Constants of every call of the pipeline."""
    probe: Trial | None = None
    """The call that proves the pipeline at load. What is left out is that of the model and its first endpoint."""
    quantization: Quantization | None = None
    offload: Literal["none", "model", "group"] = "none"
    """Networks that lie in the machine's memory and come to the GPU whole (model) or layer by layer (group)."""
    device_map: Literal["balanced"] | None = None
    """Spreads the networks over the GPUs of the replica."""
    cache: StepCache | None = None
    fps: int = Field(default=24, ge=1, le=120)
    """Frames a second of its videos."""
    vae_tiling: bool = False
    """Decodes in tiles, which takes less memory."""
    preview_decoder: str | None = None
    """The checkpoint of an AutoencoderTiny for the pipeline's latents, for previews."""
    preview_every: float | None = Field(default=None, gt=0, le=1)
    preview_interval_s: float = Field(default=1.0, ge=0)
    max_running: int = Field(default=16, ge=1)
    max_batch: int = Field(default=8, ge=1)
    order: Order = "aged"
    step_goal_s: float | None = Field(default=None, gt=0)
    step_limit_s: float = Field(default=120.0, gt=0)
    caches: CacheSizes = CacheSizes()
    matting: MattingConfig = MattingConfig()
    sharing: Sharing | None = None

    @field_validator("backend")
    @classmethod
    def _known_backend(cls, backend: str) -> str:
        if backend not in BACKENDS:
            raise ValueError(f"must be one of {', '.join(BACKENDS)}")
        return backend

    @model_validator(mode="after")
    def _check_batch(self) -> ModelConfig:
        if "max_batch" in self.model_fields_set and self.max_batch > self.max_running:
            raise ValueError(f"max_batch ({self.max_batch}) must be at most max_running ({self.max_running})")
        return self

    @model_validator(mode="after")
    def _check_offload(self) -> ModelConfig:
        if self.offload != "none" and self.device == "cpu":
            raise ValueError("offload is for GPUs; with device: cpu everything lies in the machine's memory")
        if self.offload != "none" and self.device_map is not None:
            raise ValueError("offload and device_map can't be combined")
        return self

    def differing(self, names: Iterable[str]) -> list[str]:
        """Returns those of the settings that are not at their defaults."""
        defaults = ModelConfig()
        return [name for name in names if getattr(self, name) != getattr(defaults, name)]

    @property
    def is_single_file(self) -> bool:
        return self.backend in (DIFFUSION, DIFFUSERS) and self.checkpoint.endswith(SAFETENSORS)

    @property
    def is_generic(self) -> bool:
        """Returns whether diffusers' own pipeline runs it, whatever the checkpoint is."""
        return self.backend == DIFFUSERS or self.is_single_file or bool(self.differing(GENERIC_ONLY))

    @property
    def weights(self) -> WeightsChoice:
        replaced = self.quantization.gguf_files if self.quantization else {}
        return WeightsChoice(self.dtype if isinstance(self.dtype, str) else "auto", tuple(replaced))

    def conflict(self) -> str | None:
        """Returns which setting can't be had with this checkpoint, and what would be accepted."""
        if not self.is_single_file:
            return "config_from must be null: the checkpoint is not one .safetensors file" if self.config_from else None
        if self.quantization is not None and self.quantization.method != "gguf":
            return "quantization.method must be gguf for weights in one file"
        if self.device_map is not None:
            return "device_map must be null for weights in one file"
        return None if isinstance(self.dtype, str) else "dtype must be one name for weights in one file"


class ModelSpec(ModelConfig):
    """All that a model's deployment is bound with."""

    model_config = ConfigDict(arbitrary_types_allowed=True, hide_input_in_errors=True)

    objects_url: str
    objects_options: dict[str, Any] = Field(default_factory=dict)
    objects_secrets: OptionsHere | None = Field(default=None, repr=False)
    tracing: TracingSpec | None = None
    logs: LogSpec = DEFAULT_LOGS
    proxy: str = ENVIRONMENT
    """The setting `network.proxy`, for `proxies.apply_proxy`."""


@dataclass(frozen=True, slots=True)
class RewriterSpec:
    """`checkpoint` is a hub id, a folder, or `bundled/<name>`, in the format of a causal language model.

    With an `instruction`, a model that knows chats is told so and given the prompt; what it answers is the new prompt.
    Any other model continues the prompt. Either writes at most `max_new_tokens`, the likelier ones more surely the
    lower the `temperature` is; 0 always takes the likeliest. `edit_instruction` and `ratio_instruction` are for prompts
    that say how to change an image, and for the question which ratio suits one.
    """

    checkpoint: str
    revision: str | None = None
    device: str = "auto"
    dtype: Precision = "auto"
    instruction: str = ""
    edit_instruction: str = ""
    ratio_instruction: str = ""
    max_new_tokens: int = 64
    temperature: float = 0.7
    threads: int | None = None
    logs: LogSpec = DEFAULT_LOGS
    proxy: str = ENVIRONMENT
    """The setting `network.proxy`, for `proxies.apply_proxy`."""


@dataclass(frozen=True, slots=True)
class TextEncoderSpec:
    """`checkpoint` is a pipeline's, as in ModelSpec, of which only tokenizers and text encoders are loaded. Up to
    `max_batch` prompts go through them together."""

    checkpoint: str
    revision: str | None = None
    device: str = "auto"
    dtype: Precision = "auto"
    threads: int | None = None
    max_batch: int = 8
    logs: LogSpec = DEFAULT_LOGS
    proxy: str = ENVIRONMENT
    """The setting `network.proxy`, for `proxies.apply_proxy`."""


BUNDLED: Final = Path(__file__).parent.parent / "bundled" / "checkpoints"
SIMULATED: Final = "simulated/"
"""Before the milliseconds that a step takes: no model at all (`backends/simulated.py`)."""
REDUX: Final = "redux"
"""The folder of a Flux1 checkpoint that holds what reads image prompts."""


def local_path(checkpoint: str) -> Path | None:
    """The folder of a checkpoint on this machine, None for one on the model hub.

    `bundled/NAME` has a place whether or not there is such a one.
    """
    if checkpoint.startswith("bundled/"):
        return BUNDLED / checkpoint.removeprefix("bundled/")
    return Path(checkpoint).resolve() if Path(checkpoint).is_dir() else None
