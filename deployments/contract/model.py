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
from deployments.contract.strict_settings import Device, StrictSettings, Threads
from deployments.proxies import ENVIRONMENT
from deployments.telemetry.logs import DEFAULT_LOGS, LogSpec
from deployments.telemetry.tracing import TracingSpec

Precision: TypeAlias = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"],
    Field(
        description="Precision of the weights. auto: bfloat16 on GPUs that have it, else float32; native models also "
        "use bfloat16 on CPUs where that is much faster."
    ),
]
Enlarge: TypeAlias = Literal["smooth", "sharp"]
Order: TypeAlias = Literal["aged", "oldest", "deadline"]
"""Policy of `engine/scheduler.py` for which tasks step first."""

ENHANCE_NOISE: Final = 0.909375
"""Noise level at which LTX-2 begins its second stage."""

DIFFUSION: Final = "diffusion"
RESTORERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "telea": "deployments.restorers:Telea",
        "deconvolution": "deployments.restorers:Deconvolution",
        "onnx": "deployments.onnx_networks:OnnxRestorer",
    }
)
"""Restorers by backend name, as module and class."""
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
"""Backends of a model. `diffusion` uses the native family of a checkpoint, else `diffusers`."""

BACKGROUND_REMOVERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "grabcut": "deployments.matting:GrabCut",
        "onnx": "deployments.onnx_networks:OnnxBackgroundRemover",
    }
)
"""Background removers by backend name."""
NETWORKS: Final = frozenset(("onnx",))
"""Restorers and background removers with a network; the others are algorithms without weights."""


class MattingConfig(StrictSettings):
    backend: str = "grabcut"
    """grabcut (without weights) or onnx."""
    checkpoint: str | None = None
    """File, or owner/name/file on the hub, for onnx."""
    revision: str | None = None
    """Branch, tag or commit on the hub. null: the newest."""
    device: Device = "auto"

    @model_validator(mode="after")
    def _known_backend(self) -> MattingConfig:
        if self.backend not in BACKGROUND_REMOVERS:
            raise ValueError(f"backend {self.backend!r} must be one of {', '.join(BACKGROUND_REMOVERS)}")
        return self


class CacheSizes(StrictSettings):
    """Sizes of a replica's caches on the model's device. 0 turns a cache off."""

    prompts_mb: int = Field(default=256, ge=0)
    """Encoded prompts, MB."""
    references_mb: int = Field(default=256, ge=0)
    """Encoded reference images, MB."""
    adapters_mb: int = Field(default=1024, ge=0)
    """Weights of the latest fine-tunes, MB; evicted ones that are in use come on top."""


class Sharing(StrictSettings):
    device: str = Field(pattern="^[A-Za-z0-9_.-]+$")
    """Name of the device, the same for all models that share it."""
    priority: Literal["high", "low"]
    """Models with low priority wait before each step while one with high priority has work."""
    max_wait_s: float = Field(default=10.0, ge=0)
    """Longest such wait, seconds."""
    turn_s: float | None = Field(default=None, gt=0)
    """Seconds that a model keeps a device with memory for one model while others wait. null: there is memory for
    all."""


Unit = Annotated[float, Field(ge=0, le=1)]


class CfgConfig(StrictSettings):
    """Classifier-free guidance: `uncond + scale * (cond - uncond)`, two forwards, at flow times in `interval`."""

    scale: float = Field(ge=1, le=100, allow_inf_nan=False)
    """CFG scale."""
    interval: tuple[Unit, Unit] = (0.0, 1.0)
    """Flow times with CFG, from low to high: 1 is noise, 0 the finished image."""

    @field_validator("interval")
    @classmethod
    def _in_order(cls, interval: tuple[float, float]) -> tuple[float, float]:
        if interval[0] > interval[1]:
            raise ValueError("the first flow time must be at most the second: [0.5, 0.9]")
        return interval


class VideoGuidance(StrictSettings):
    """LTX-2's guidance beside CFG of the image, by default that of diffusers' pipeline.

    STG moves away from the network's result without self-attention in `stg_blocks`; modality guidance moves away from
    its result for image and sound apart. Each takes one more forward a step, unless `stg` is 0 or `modality` 1.
    """

    audio: float = Field(default=7.0, ge=1, le=100)
    """CFG of the sound."""
    stg: float = Field(default=1.0, ge=0, le=100)
    """Scale of STG; 0 turns it off."""
    stg_blocks: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(28,), min_length=1)
    """Blocks that skip self-attention for STG."""
    modality: float = Field(default=3.0, ge=1, le=100)
    """Scale of modality guidance; 1 turns it off."""
    rescale: float = Field(default=0.7, ge=0, le=1)
    """Share of the way back to the unguided contrast."""


class Quantization(StrictSettings):
    method: Literal["fp8", "int8", "nf4", "gguf"]
    """fp8 and int8: torchao. nf4: bitsandbytes. gguf: from a file."""
    parts: tuple[str, ...] = Field(default=("transformer",), min_length=1)
    """Components of the checkpoint's index."""
    file: str | None = None
    """gguf file, or owner/name/path/to/file.gguf on the hub."""
    files: dict[str, str] = Field(default_factory=dict)
    """gguf files of several parts, by part."""

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


class FusedAdapter(StrictSettings):
    file: str
    """.safetensors file, or owner/name/path/to/file.safetensors on the hub."""
    scale: float = Field(default=1.0, ge=-10, le=10)
    """Strength."""
    part: str | None = None
    """Component that it changes, such as transformer_2. null: those that the file names, or all denoisers."""


class SchedulerConfig(StrictSettings):
    name: str | None = None
    """Scheduler class of diffusers. null: the checkpoint's."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Its options, such as {use_karras_sigmas: true}; the others are those of the checkpoint."""


class StepCache(StrictSettings):
    method: Literal["first_block", "mag", "taylor"]
    """Cache hook of diffusers."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Its options, such as {threshold: 0.1}."""


EngineKind: TypeAlias = Literal["vllm-omni", "sglang", "gen-serve", "comfyui"]
COMFYUI: Final = "comfyui"
_SAMPLING: Final = {"seed": "seed", "steps": "num_inference_steps", "guidance": "guidance_scale"}
_SAMPLING_AND_FRAMES: Final = {**_SAMPLING, "negative_prompt": "negative_prompt", "frames": "num_frames", "fps": "fps"}
ENGINE_FIELDS: Final[Mapping[EngineKind, Mapping[str, str]]] = MappingProxyType(
    {
        "vllm-omni": {
            **_SAMPLING_AND_FRAMES,
            "strength": "strength",
            "mask": "mask_image",
            "audio": "generate_sound",
        },
        "sglang": _SAMPLING_AND_FRAMES,
        "gen-serve": {"seed": "seed", "steps": "steps", "guidance": "guidance", "mask": "mask", "seconds": "seconds"},
        "comfyui": {},
    }
)
"""Engines' names of a job's parameters in their variants of OpenAI's API; an engine lacks those that are missing."""


class EngineConfig(StrictSettings):
    """An inference server: one with OpenAI's routes for images and videos, or ComfyUI."""

    kind: EngineKind
    """Variant of the API."""
    workflow: Path | None = None
    """ComfyUI: file of the workflow, saved with Workflow > Export (API)."""
    output: str | tuple[str, ...] = ()
    """ComfyUI: nodes whose files are the result, by id or title, in this order. Empty: all that save files."""
    stall_s: float = Field(default=300.0, gt=0)
    """ComfyUI: seconds without a message from a running workflow after which it is interrupted, then its server
    restarted."""
    lora_dir: Path | None = None
    """ComfyUI: its folder models/loras, as this machine sees it, for uploaded tuned models. null: none are taken."""
    restart_after: int | None = Field(default=None, ge=1)
    """Tasks after which the command is restarted, against leaks of memory. null: never."""
    url: str | tuple[str, ...] = ()
    """URL of a running engine, or URLs; each task goes to the least loaded. Empty: command starts one."""
    command: str | None = None
    """Command that starts an engine on the replica's GPUs. {port} stands for the port to listen on, {folder} for an
    empty folder of its own, which is removed when it ends. null: url has it."""
    model: str | None = None
    """Value of model in requests. null: left out."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further fields of requests."""
    fields: dict[str, str | None] = Field(default_factory=dict)
    """Its names of our fields: seed, steps, guidance, negative_prompt, strength, mask, frames, seconds, fps, audio.
    null: not supported."""
    api_key_file: Path | None = None
    """File with its API key, which may be in the command's {folder}. null: none."""
    start_timeout_s: float = Field(default=1800.0, gt=0)
    """Seconds from the start of the command until the engine is healthy."""
    health_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds of failing health checks before its tasks are retried and the command is restarted."""

    @model_validator(mode="after")
    def _check_location(self) -> EngineConfig:
        if (self.command is None) == (not self.urls):
            raise ValueError("either url or command is needed")
        if self.command is not None and "{port}" not in self.command:
            raise ValueError("command must say {port} where the port to listen on goes")
        if strange := [url for url in self.urls if not url.startswith(("http://", "https://"))]:
            raise ValueError(f"url must begin with http:// or https://, not {strange[0]}")
        if (self.workflow is not None) != (self.kind == COMFYUI):
            raise ValueError("workflow is needed for kind: comfyui, and for no other")
        if self.restart_after is not None and self.command is None:
            raise ValueError("restart_after needs a command to restart")
        if unknown := self.fields.keys() - _ENGINE_PARAMETERS:
            raise ValueError(f"fields: {', '.join(sorted(unknown))} must be of {', '.join(sorted(_ENGINE_PARAMETERS))}")
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        urls = (self.url,) if isinstance(self.url, str) else self.url
        return tuple(url.rstrip("/") for url in urls if url)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.output,) if isinstance(self.output, str) else self.output

    @property
    def names(self) -> Mapping[str, str]:
        """The engine's names of a job's parameters, without those that it does not support."""
        names = {**ENGINE_FIELDS[self.kind], **self.fields}
        return {parameter: name for parameter, name in names.items() if name is not None}


GENERIC_ONLY: Final = (
    *("config_from", "pipeline", "pipeline_kwargs", "quantization", "offload"),
    *("device_map", "cache", "vae_tiling", "preview_decoder", "loras", "scheduler", "components"),
)
"""Settings of diffusers' pipelines that native families don't have."""
NATIVE_ONLY: Final = (
    *("packed_attention", "render_side", "enlarge", "channels_last", "tile_above", "cfg", "redux"),
    *("distilled", "enhance_noise", "video_guidance", "keyframe_crf"),
)
"""Settings of native families that diffusers' pipelines don't have."""
_ENGINE_PARAMETERS: Final = {name for names in ENGINE_FIELDS.values() for name in names} | {"strength"}


class Trial(StrictSettings):
    """Trial call of a pipeline at load."""

    width: int = Field(default=256, ge=16)
    """Pixels."""
    height: int = Field(default=256, ge=16)
    """Pixels."""
    frames: int = Field(default=9, ge=1)
    """Frames of a video."""
    steps: int = Field(default=2, ge=1)
    """Requested steps; pipelines that can be interrupted take two of them."""


class ModelConfig(StrictSettings):
    """Settings with which a replica loads and runs a model."""

    backend: str = DIFFUSION
    """diffusion: the checkpoint's native family, else its diffusers pipeline. diffusers: always the pipeline. engine:
    an inference server. onnx, telea, deconvolution: image restoration in one pass."""
    engine: EngineConfig | None = None
    """Inference server of the engine backend; see configs/engines-catalog.yaml."""
    checkpoint: str = ""
    """Hub id, folder, bundled/<name>, a .safetensors file (here, or owner/name/file on the hub), or simulated/<n>ms: no
    model, n ms a step. Empty for algorithms without weights."""
    revision: str | None = None
    """Branch, tag or commit on the hub. null: the newest."""
    config_from: str | None = None
    """Checkpoint with configuration and tokenizers for a .safetensors file. null: the one that diffusers infers."""
    redux: str | None = None
    """Flux1: checkpoint that reads image prompts. null: the folder redux of its own checkpoint."""
    device: Device = "auto"
    dtype: Precision | dict[str, Precision] = "auto"
    """Precision of the weights. Diffusers' pipelines accept one per component: {default: bfloat16, vae: float32}."""
    attention: tuple[str, ...] = Field(default=("native",), min_length=1)
    """Attention backends of diffusers to try; the fastest that works is used."""
    packed_attention: tuple[str, ...] = ("sdpa_loop",)
    """Attention for images of different sizes in one step. varlen, xformers, flash: one CUDA call for all. sdpa_loop: a
    call each."""
    compile: bool = False
    """Use torch.compile: a slower start and faster steps. Falls back to eager."""
    threads: Threads = None
    render_side: int | None = Field(default=None, ge=32)
    """Shorter side in pixels to render at, scaled to the requested size; for the bundled models. null: full size."""
    enlarge: Enlarge = "smooth"
    """Scaling after render_side. sharp suits drawings and posterises photographs."""
    channels_last: bool = False
    """Memory format of the image autoencoder; faster on some devices, with other rounding."""
    tile_above: int | None = Field(default=None, ge=64, multiple_of=64)
    """Side in pixels above which the image autoencoder works in tiles, to save memory. null: never."""
    cfg: CfgConfig | None = None
    """Classifier-free guidance of an image model that is not guidance-distilled. null: none."""
    distilled: bool = False
    """LTX-2: the checkpoint is distilled to a few noise levels."""
    enhance_noise: float = Field(default=ENHANCE_NOISE, gt=0, le=1)
    """LTX-2: noise over a draft before it is enhanced. More changes more."""
    video_guidance: VideoGuidance | None = None
    """LTX-2, not distilled: guidance beside CFG of the image. null: plain CFG."""
    keyframe_crf: int | None = Field(default=None, ge=0, le=51)
    """LTX-2: H.264 CRF that keyframes are compressed with before the model reads them; 0: they are not. null: 33, from
    LTX-2.5 on 18."""
    pipeline: str | None = None
    """Diffusers: pipeline class. This and the next ones up to preview_decoder replace the native family. null: the
    checkpoint's."""
    pipeline_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Diffusers: constant arguments of every call."""
    loras: tuple[FusedAdapter, ...] = ()
    """Diffusers: adapters that are added to the weights at load, such as Lightning's for few steps."""
    scheduler: SchedulerConfig | None = None
    """Diffusers: another scheduler, or other options. null: the checkpoint's."""
    components: dict[str, str] = Field(default_factory=dict)
    """Diffusers: checkpoints of components that replace the pipeline's or add to it: {vae: owner/name}."""
    quantization: Quantization | None = None
    """Diffusers: weights in fewer bits. Needs pip install 'gen-serve[quantization]'. null: none."""
    offload: Literal["none", "model", "group"] = "none"
    """Diffusers: keep networks in CPU memory and move them to the GPU whole (model) or layer by layer (group)."""
    device_map: Literal["balanced"] | None = None
    """Diffusers: balanced spreads the networks over the replica's GPUs. null: one device."""
    cache: StepCache | None = None
    """Diffusers: reuse results from step to step. null: no."""
    vae_tiling: bool = False
    """Diffusers: decode in tiles, to save memory."""
    preview_decoder: str | None = None
    """Diffusers: AutoencoderTiny checkpoint for previews. null: no previews."""
    probe: Trial | None = None
    """Diffusers: trial call at load. Keys left out are those of the model and its first endpoint."""
    fps: int = Field(default=24, ge=1, le=120)
    """Frames a second of videos."""
    preview_every: float | None = Field(default=None, gt=0, le=1)
    """Share of the steps between previews, at some 10 CPU ms each: 0.25 makes three. null: no previews."""
    preview_interval_s: float = Field(default=1.0, ge=0)
    """Minimum seconds between previews, and before the first."""
    max_running: int = Field(default=16, ge=1)
    """Tasks in the engine at once. At least twice max_batch, so that free slots are filled at once."""
    max_batch: int = Field(default=8, ge=1)
    """Maximum number of images in one forward; fewer if more don't pay. At most max_running."""
    order: Order = "aged"
    """Tasks that step first. aged: short or long waiting ones. oldest. deadline: the closest to five times its own
    duration."""
    step_goal_s: float | None = Field(default=None, gt=0)
    """Longest expected seconds of a batched step; tasks join, leave and yield between steps. null: no limit."""
    step_limit_s: float = Field(default=120.0, gt=0)
    """Seconds after which a call of the model (encode, step or decode) counts as hung."""
    caches: CacheSizes = CacheSizes()
    """Caches on the model's device; 0 turns one off."""
    matting: MattingConfig = MattingConfig()
    """Background removal for transparent_bg."""
    sharing: Sharing | None = None
    """Sharing of a device with other models of this machine. null: not shared."""

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
        """Returns those of `names` that are not at their defaults."""
        defaults = ModelConfig()
        return [name for name in names if getattr(self, name) != getattr(defaults, name)]

    @model_validator(mode="after")
    def _check_loras(self) -> ModelConfig:
        if self.loras and self.quantization is not None:
            raise ValueError(
                "loras and quantization can't be combined: adapters are added to weights of full precision"
            )
        return self

    @property
    def is_single_file(self) -> bool:
        return self.backend in (DIFFUSION, DIFFUSERS) and self.checkpoint.endswith(SAFETENSORS)

    @property
    def is_generic(self) -> bool:
        """Returns whether diffusers' pipeline runs the model, even if a native family could."""
        return self.backend == DIFFUSERS or self.is_single_file or bool(self.differing(GENERIC_ONLY))

    @property
    def weights(self) -> WeightsChoice:
        replaced = self.quantization.gguf_files if self.quantization else {}
        return WeightsChoice(self.dtype if isinstance(self.dtype, str) else "auto", tuple(replaced))

    def conflict(self) -> str | None:
        """Returns the setting that this checkpoint does not allow, with the values that it does; None if all fit."""
        if not self.is_single_file:
            return "config_from must be null: the checkpoint is not one .safetensors file" if self.config_from else None
        if self.quantization is not None and self.quantization.method != "gguf":
            return "quantization.method must be gguf for weights in one file"
        if self.device_map is not None:
            return "device_map must be null for weights in one file"
        return None if isinstance(self.dtype, str) else "dtype must be one name for weights in one file"


class ModelSpec(ModelConfig):
    """Arguments of a model's deployment."""

    model_config = ConfigDict(arbitrary_types_allowed=True, hide_input_in_errors=True)

    workflow: dict[str, Any] | None = None
    """Graph of a ComfyUI workflow, in API format."""
    objects_url: str
    objects_options: dict[str, Any] = Field(default_factory=dict)
    objects_secrets: OptionsHere | None = Field(default=None, repr=False)
    tracing: TracingSpec | None = None
    logs: LogSpec = DEFAULT_LOGS
    proxy: str = ENVIRONMENT
    """The setting `network.proxy`."""


@dataclass(frozen=True, slots=True)
class RewriterSpec:
    """Arguments of the rewriter's deployment.

    A chat model gets `instruction` and the prompt, and its reply is the new prompt; any other model continues the
    prompt. `edit_instruction` is for prompts of edits, `ratio_instruction` for the choice of an aspect ratio.
    `temperature` 0 always takes the likeliest token.
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
    """The setting `network.proxy`."""


@dataclass(frozen=True, slots=True)
class TextEncoderSpec:
    """Arguments of a text encoder's deployment. Of the pipeline at `checkpoint`, tokenizers and text encoders are
    loaded."""

    checkpoint: str
    revision: str | None = None
    device: str = "auto"
    dtype: Precision = "auto"
    threads: int | None = None
    max_batch: int = 8
    logs: LogSpec = DEFAULT_LOGS
    proxy: str = ENVIRONMENT
    """The setting `network.proxy`."""


BUNDLED: Final = Path(__file__).parent.parent / "bundled" / "checkpoints"
SIMULATED: Final = "simulated/"
"""Prefix of a checkpoint that is no model (`backends/simulated.py`); the milliseconds of a step follow."""
REDUX: Final = "redux"
"""Folder of a Flux1 checkpoint with the networks that read image prompts."""


def local_path(checkpoint: str) -> Path | None:
    """Returns the folder of a checkpoint on this machine, None for one on the model hub.

    `bundled/NAME` has a folder even if no such checkpoint is bundled.
    """
    if checkpoint.startswith("bundled/"):
        return BUNDLED / checkpoint.removeprefix("bundled/")
    return Path(checkpoint).resolve() if Path(checkpoint).is_dir() else None
