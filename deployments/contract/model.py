"""Specs of replicas: all that a deployment gets from the service's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from deployments.contract.objects import OptionsHere
from deployments.telemetry.logs import USUAL_LOGS, LogSpec
from deployments.telemetry.tracing import TracingSpec

Precision: TypeAlias = Literal["auto", "float32", "bfloat16"]
Enlarge: TypeAlias = Literal["smooth", "sharp"]
Order: TypeAlias = Literal["aged", "oldest", "deadline"]
"""Who takes steps first, as `engine/policy.py` has it."""

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
BACKENDS: Final = (DIFFUSION, *RESTORERS)
"""What a model can be run by."""

BACKGROUND_REMOVERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "grabcut": "deployments.matting:GrabCut",
        "onnx": "deployments.onnx_networks:OnnxBackgroundRemover",
    }
)
"""The same for what cuts the subject out of a picture."""
NETWORKS: Final = frozenset(("onnx",))
"""Of both, those that read a network; the others are algorithms, without weights."""


@dataclass(frozen=True, slots=True)
class MattingSpec:
    """`backend` is one of BACKGROUND_REMOVERS; `checkpoint` a file, or `owner/name/file` on the hub, for those that
    read one.
    """

    backend: str = "grabcut"
    checkpoint: str | None = None
    revision: str | None = None
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class Caches:
    """How many megabytes a replica keeps of what may serve another job, on the model's device: prompts as the text
    encoders read them, reference pictures as the autoencoder does, and the weights of adapters. 0 keeps nothing."""

    prompts_mb: int = 256
    references_mb: int = 256
    adapters_mb: int = 1024


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a model shares `device`, whatever name that has, with others of the same machine.

    While a model of high priority has work, one of low priority waits before each step, up to `max_wait_s`.
    """

    device: str
    priority: Literal["high", "low"]
    max_wait_s: float = 10.0


@dataclass(frozen=True, slots=True)
class CfgConfig:
    """Classifier-free guidance: `uncond + scale * (cond - uncond)`, two forwards, at flow times in `interval`."""

    scale: float
    interval: tuple[float, float] = (0.0, 1.0)
    """1 is noise alone, 0 the finished picture."""


@dataclass(frozen=True, slots=True)
class VideoGuidance:
    """The parts of LTX-2's guidance beside CFG of the picture, as diffusers' pipeline has them unless told otherwise.

    `audio` is CFG of the sound. STG goes away from what the network makes without self-attention in `stg_blocks`,
    modality guidance from what it makes of picture and sound apart: each asks it once more a step, unless `stg` is 0 or
    `modality` 1. `rescale` is how far the contrast of what is guided returns to that of the prompt alone.
    """

    audio: float = 7.0
    stg: float = 1.0
    stg_blocks: tuple[int, ...] = (28,)
    modality: float = 3.0
    rescale: float = 0.7


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """`backend` is what runs the model, one of BACKENDS. `checkpoint` is a hub id, a folder, `bundled/<name>`, or
    `simulated/<n>ms`: no model, n ms a step; for restorers a file, or `owner/name/file` on the hub, and empty for those
    that read none. `attention` names attention backends, tried in order, and `packed_attention` those for pictures that
    take a step together. `matting` cuts out the subject where a job wants its background gone.

    Pictures are rendered with a shorter side of `render_side` pixels, whatever size was asked for, and scaled to it:
    for small models that know one size. None renders every picture at its size. `enlarge` `smooth` interpolates;
    `sharp` also makes edges crisp, which suits drawings and posterises photographs. The autoencoder of pictures has its
    channels together in memory (`channels_last`), and takes what is larger than `tile_above` pixels per side in tiles.
    `cfg` is for pictures of a model that is not distilled to guide itself. `redux` is the checkpoint that
    reads image prompts; without one, a folder of that name in the model's own.
    `distilled` says of a video model that it was made for a few noise levels; `enhance_noise` is how much noise it puts
    over a draft, up to 1, to draw it anew. Without `video_guidance` it has plain CFG. Its keyframes are compressed by
    H.264 of `keyframe_crf` first (0: not at all; None: as its generation of LTX-2 learned from).
    `max_running` jobs are in the engine at a time, at most `max_batch` of them in one forward; one of several may be
    expected to take `step_goal_s`, and `order` says who goes first. A single forward that takes longer than
    `step_limit_s` counts as hung.
    `preview_every` is the share of the steps between two previews, which are `preview_interval_s` apart at least.
    """

    checkpoint: str
    objects_url: str
    backend: str = DIFFUSION
    revision: str | None = None
    device: str = "auto"
    dtype: Precision = "auto"
    attention: tuple[str, ...] = ("native",)
    packed_attention: tuple[str, ...] = ("sdpa_loop",)
    compile: bool = False
    threads: int | None = None
    render_side: int | None = None
    enlarge: Enlarge = "smooth"
    channels_last: bool = False
    tile_above: int | None = None
    cfg: CfgConfig | None = None
    redux: str | None = None
    distilled: bool = False
    enhance_noise: float = ENHANCE_NOISE
    video_guidance: VideoGuidance | None = None
    keyframe_crf: int | None = None
    preview_every: float | None = None
    preview_interval_s: float = 1.0
    max_running: int = 16
    max_batch: int = 8
    order: Order = "aged"
    step_goal_s: float | None = None
    step_limit_s: float = 120.0
    caches: Caches = Caches()
    matting: MattingSpec = MattingSpec()
    sharing: Sharing | None = None
    objects_options: dict[str, Any] = field(default_factory=dict)
    objects_secrets: OptionsHere | None = None
    tracing: TracingSpec | None = None
    logs: LogSpec = USUAL_LOGS


@dataclass(frozen=True, slots=True)
class RewriterSpec:
    """`checkpoint` is a hub id, a folder, or `bundled/<name>`, in the format of a causal language model.

    With an `instruction`, a model that knows chats is told so and given the prompt; what it answers is the new prompt.
    Any other model continues the prompt. Either writes at most `max_new_tokens`, the likelier ones more surely the
    lower the `temperature` is; 0 always takes the likeliest. `edit_instruction` and `ratio_instruction` are for prompts
    that say how to change a picture, and for the question which ratio suits one.
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
    logs: LogSpec = USUAL_LOGS


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
    logs: LogSpec = USUAL_LOGS


BUNDLED: Final = Path(__file__).parent.parent / "bundled" / "checkpoints"
SIMULATED: Final = "simulated/"
"""Before the milliseconds that a step takes: no model at all (`backends/simulated.py`)."""
REDUX: Final = "redux"
"""The folder of a Flux1 checkpoint that holds what reads image prompts."""


def place_of(checkpoint: str) -> Path | None:
    """The folder of a checkpoint on this machine, None for one on the model hub.

    `bundled/NAME` has a place whether or not there is such a one.
    """
    if checkpoint.startswith("bundled/"):
        return BUNDLED / checkpoint.removeprefix("bundled/")
    return Path(checkpoint).resolve() if Path(checkpoint).is_dir() else None
