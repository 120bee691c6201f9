"""Phases of the diffusers backend: pipelines without a native family, at published sizes with random weights.

Text encoders have the right width but one layer: whole ones would take memory and time to build without changing the
steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import torch

from benchmarks.gpu.models import FLUX_VAE, default_dtype_and_device, diffusers, transformers
from benchmarks.gpu.workbench import Metrics, Skipped, Workbench
from deployments.backends.diffusers import DiffusersBackend, PipelineState
from deployments.checkpoint_files import pipeline_folder
from deployments.contract.model import ModelConfig, Trial
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.diffusers_loading import LoadedPipeline, prepare_pipeline
from deployments.families.pipeline import LoadOptions

_ATTENTIONS: Final = ("_native_cudnn", "native", "_native_flash")
"""Diffusers' names of the attentions that need no package or download."""
_EARLY: Final = 0.02
"""Share of a step's device time by which `step` may return before the device is done."""
_TINY_WIDTH: Final = 32
_TINY_HEADS: Final = {"num_attention_heads": 2, "attention_head_dim": 16}
_TINY_ROPE: Final = [8, 4, 4]
_TINY_VAE: Final = {"base_dim": 8, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 0}
_CHAT: Final = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """Call of a pipeline, with the number of steps to measure."""

    label: str
    width: int = 1024
    height: int = 1024
    count: int = 1
    frames: int = 0
    """Frames of a video; 0 for images."""
    guidance: float = 0.0
    """CFG scale; above 1 every pipeline here runs two forwards per step."""
    steps: int = 3
    """Steps to measure; the first of several only warms up."""


_IMAGES: Final = (*(PipelineRequest(f"{count} x 1024 px", count=count) for count in (1, 2, 4)),)
_GUIDED: Final = PipelineRequest("1 x 1024 px with guidance", guidance=4.0)
_SMALL_VIDEO: Final = PipelineRequest("832 x 480 px, 81 frames", 832, 480, frames=81, steps=2)
_LARGE_VIDEO: Final = PipelineRequest("1280 x 720 px, 81 frames", 1280, 720, frames=81, steps=1)


def image_pipeline(name: str, bench: Workbench) -> None:
    _measure_pipeline(bench, name, (*_IMAGES, _GUIDED), compiled=_IMAGES)


def video_pipeline(bench: Workbench) -> None:
    _measure_pipeline(bench, "wan", (_SMALL_VIDEO, _LARGE_VIDEO), compiled=(_SMALL_VIDEO,))


def _measure_pipeline(
    bench: Workbench, name: str, requests: Sequence[PipelineRequest], compiled: Sequence[PipelineRequest]
) -> None:
    bench.forget()
    started_at = time.perf_counter()
    pipeline = build(name, bench.device, tiny=bench.tiny)
    bench.wait()
    built_s = round(time.perf_counter() - started_at, 2)
    probe = Trial(width=64, height=64, frames=5) if bench.tiny else None
    attentions = _ATTENTIONS if bench.cuda else ("native",)
    config = ModelConfig(device="cuda" if bench.cuda else "cpu", attention=attentions, probe=probe)
    started_at = time.perf_counter()
    loaded = prepare_pipeline(pipeline, config)
    network = pipeline.transformer
    with bench.part("load") as metrics:
        weights = list(network.parameters())
        metrics |= {"built_s": built_s, "prepared_s": round(time.perf_counter() - started_at, 2), **loaded.setup}
        metrics |= {"parameters_b": round(sum(each.numel() for each in weights) / 1e9, 3)}
        metrics |= {"weights_gb": round(sum(each.nbytes for each in weights) / 1e9, 2)}
    backend = DiffusersBackend(
        pipeline, ObjectStore("memory:///"), max_batch=config.max_batch if loaded.takes_several else 1
    )
    for request in requests:
        _measure(bench, backend, request)
    selected = loaded.setup["attention"]
    for attention in attentions:
        once = replace(
            requests[0], steps=max(1, requests[0].steps - 1), label=f"{requests[0].label}, attention {attention}"
        )
        with bench.part(f"step of {once.label}") as metrics:
            bench.check_deadline()
            try:
                network.set_attention_backend(attention)
                metrics |= _steps(bench, backend, once)[0]
            except (RuntimeError, ValueError) as error:  # the service skips it on these, too
                raise Skipped(f"unusable here: {error}") from error
    network.set_attention_backend(selected)
    if _compile(bench, loaded, config.model_copy(update={"compile": True, "attention": (selected,)})):
        for request in compiled:
            _measure(bench, backend, replace(request, label=f"{request.label}, compiled"), decodes=False)


def build(name: str, device: torch.device, *, tiny: bool) -> Any:
    """Makes one of `BUILDERS` with new weights: at full size in bfloat16, or small in float32."""
    with default_dtype_and_device(LoadOptions(device, torch.float32 if tiny else torch.bfloat16)):
        parts = dict(BUILDERS[name](tiny))
    pipeline = parts.pop("pipeline")(**parts)
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval().requires_grad_(False)
    for path, module in pipeline.transformer.named_modules():
        if path.rpartition(".")[2] in (pipeline.transformer._keep_in_fp32_modules or ()):
            module.float()
    return pipeline


def _measure(bench: Workbench, backend: DiffusersBackend, request: PipelineRequest, *, decodes: bool = True) -> None:
    states: Sequence[PipelineState] = ()
    with bench.part(f"step of {request.label}") as metrics:
        figures, states = _steps(bench, backend, request)
        metrics |= figures
        if request.count == 1 and request.steps > 2:  # shows that the comparison detects an early return
            with patch("deployments.backends.pipeline_run.wait_for_devices"):
                step_s, device_s = _step_once(bench, backend, states)
            metrics["unwaited_difference"] = round(1 - step_s / device_s, 4)
    if not decodes:
        return
    with bench.part(f"decode of {request.label}") as metrics:
        if not states:
            raise Skipped("no step was taken")
        states[0].call.run.skip_steps()
        before = _begin_memory(bench)
        whole_s, pixels_s = (bench.seconds(lambda: [backend.finish(state) for state in states]) for _ in range(2))
        metrics |= {"ms": round(1e3 * whole_s, 2), "pixels_ms": round(1e3 * pixels_s, 2)} | _peak(bench, before)


def _steps(
    bench: Workbench, backend: DiffusersBackend, request: PipelineRequest
) -> tuple[Metrics, Sequence[PipelineState]]:
    """Steps one call. Returns the figures and the states after the steps."""
    before, started_at = _begin_memory(bench), time.perf_counter()
    states = _begin(bench, backend, request)
    encode_s = time.perf_counter() - started_at
    times = [_step_once(bench, backend, states) for _ in range(request.steps)]
    counted = times[1:] or times
    step_s, device_s = (median(values) for values in zip(*counted, strict=True))
    difference = round(max(1 - step / device for step, device in times), 4)
    metrics: Metrics = {"ms": round(1e3 * step_s, 2), "steps_per_s": round(request.count / step_s, 3)}
    metrics |= {"device_ms": round(1e3 * device_s, 2), "first_s": round(times[0][0], 2)}
    metrics |= {"encode_ms": round(1e3 * encode_s, 2)} | _peak(bench, before)
    return metrics | {"difference": difference, "tolerance": _EARLY, "passed": difference <= _EARLY}, states


def _begin(bench: Workbench, backend: DiffusersBackend, request: PipelineRequest) -> Sequence[PipelineState]:
    """Returns the states of one call before its first step."""
    bench.check_deadline()
    jobs = bench.jobs([(request.width, request.height)] * request.count, steps=request.steps + 2)
    changes: Any = {"guidance": request.guidance}
    if request.frames:
        frames = 5 if bench.tiny else request.frames
        changes |= {"video": VideoParams(frames=frames), "output_format": "mp4"}
    jobs = [
        replace(job, request=replace(job.request, prompt=" ".join([job.request.prompt] * 8), **changes)) for job in jobs
    ]
    states = [each for each in backend.encode([backend.fetch(job) for job in jobs]) if isinstance(each, PipelineState)]
    if len(states) < len(jobs) or any(state.call is not states[0].call for state in states):
        raise Skipped("the pipeline does not take them in one call")
    return states


def _step_once(bench: Workbench, backend: DiffusersBackend, states: Sequence[PipelineState]) -> tuple[float, float]:
    """Returns the seconds until `step` returned and those that the device took."""
    bench.check_deadline()
    bench.wait()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if bench.cuda else []
    for event in events[:1]:
        event.record()
    started_at = time.perf_counter()
    backend.step(states)
    step_s = time.perf_counter() - started_at
    for event in events[1:]:
        event.record()  # after all queued work
    bench.wait()
    return step_s, events[0].elapsed_time(events[1]) / 1e3 if events else step_s


def _compile(bench: Workbench, loaded: LoadedPipeline, config: ModelConfig) -> bool:
    """Compiles as the service does. Returns whether that worked."""
    setup: Mapping[str, str] = {}
    with bench.part("compile") as metrics:
        bench.check_deadline()
        started_at = time.perf_counter()
        compiler = partial(torch.compile, backend="eager")
        with nullcontext() if bench.cuda else patch.object(torch, "compile", compiler):
            setup = prepare_pipeline(loaded.pipeline, config).setup
        metrics |= {"s": round(time.perf_counter() - started_at, 2), "compiled": setup["compiled"]}
        if setup["compiled"] != "true":
            raise RuntimeError("the pipeline can't be compiled; see the log")
    return setup.get("compiled") == "true"


def _begin_memory(bench: Workbench) -> int:
    """Resets the peak. Returns the bytes in use."""
    bench.clear()
    if not bench.cuda:
        return 0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _peak(bench: Workbench, before: int) -> Metrics:
    return {"gb": round((torch.cuda.max_memory_allocated() - before) / 1e9, 2)} if bench.cuda else {}


def _z_image(tiny: bool) -> Mapping[str, Any]:
    """Parts of Z-Image with 6 B parameters."""
    heads = {"n_heads": 2, "n_kv_heads": 2, "n_layers": 2, "n_refiner_layers": 1, "axes_dims": _TINY_ROPE}
    sizes: Any = {"dim": _TINY_WIDTH, "cap_feat_dim": _TINY_WIDTH, **heads} if tiny else {}
    network = diffusers.ZImageTransformer2DModel(**sizes, axes_lens=[1536, 512, 512])
    vae: Any = {"block_out_channels": (8,) * 4, "norm_num_groups": 2} if tiny else {}
    encoder = transformers.Qwen3Model(transformers.Qwen3Config(**_text_sizes(network.config.cap_feat_dim)))
    return {
        "pipeline": diffusers.ZImagePipeline,
        "transformer": network,
        "vae": diffusers.AutoencoderKL(**FLUX_VAE | vae),
        "text_encoder": encoder,
        "tokenizer": _tokenizer(),
        "scheduler": _scheduler("FlowMatchEulerDiscreteScheduler", shift=3.0),
    }


def _qwen_image(tiny: bool) -> Mapping[str, Any]:
    """Parts of Qwen-Image with 20 B parameters."""
    sizes: Any = {"num_layers": 2, "joint_attention_dim": _TINY_WIDTH, "axes_dims_rope": _TINY_ROPE, **_TINY_HEADS}
    network = diffusers.QwenImageTransformer2DModel(**sizes if tiny else {})
    text = _text_sizes(width := network.config.joint_attention_dim)
    text["rope_parameters"] = {"rope_type": "default", "mrope_section": [2, 3, 3]}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": width}
    encoder = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    shift: Any = {"base_shift": 0.5, "max_shift": 0.9, "max_image_seq_len": 8192, "shift_terminal": 0.02}
    return {
        "pipeline": diffusers.QwenImagePipeline,
        "transformer": network,
        "vae": diffusers.AutoencoderKLQwenImage(**_TINY_VAE if tiny else {}),
        "text_encoder": transformers.Qwen2_5_VLForConditionalGeneration(encoder),
        "tokenizer": _tokenizer(),
        "scheduler": _scheduler("FlowMatchEulerDiscreteScheduler", use_dynamic_shifting=True, **shift),
    }


def _wan(tiny: bool) -> Mapping[str, Any]:
    """Parts of Wan 2.2 with 14 B parameters and one of its two transformers, which have one size."""
    sizes: Any = {"text_dim": _TINY_WIDTH, "ffn_dim": _TINY_WIDTH, "num_layers": 2, **_TINY_HEADS}
    network = diffusers.WanTransformer3DModel(**sizes if tiny else {})
    folder, _ = pipeline_folder("bundled/flux")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer_2", model_max_length=512)
    text = {"d_model": network.config.text_dim, "d_kv": 8, "d_ff": 32, "num_heads": 4, "num_layers": 1}
    encoder = transformers.UMT5Config(**text, vocab_size=len(tokenizer), feed_forward_proj="gated-gelu")
    flow: Any = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
    return {
        "pipeline": diffusers.WanPipeline,
        "transformer": network,
        "vae": diffusers.AutoencoderKLWan(**_TINY_VAE if tiny else {}),
        "text_encoder": transformers.UMT5EncoderModel(encoder),
        "tokenizer": tokenizer,
        "scheduler": _scheduler("UniPCMultistepScheduler", **flow),
    }


def _scheduler(name: str, **settings: Any) -> Any:
    with torch.device("cpu"):  # schedulers keep their tables there, wherever the networks are
        return getattr(diffusers, name)(**settings)


def _text_sizes(width: int) -> dict[str, Any]:
    heads = {"num_attention_heads": width // 16, "num_key_value_heads": 1, "head_dim": 16}
    tokens = {"vocab_size": len(_tokenizer()), "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    return {"hidden_size": width, "intermediate_size": 32, "num_hidden_layers": 1, **heads, **tokens}


def _tokenizer() -> Any:
    folder, _ = pipeline_folder("bundled/flux3")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")
    tokenizer.chat_template = _CHAT
    return tokenizer


BUILDERS: Final[Mapping[str, Callable[[bool], Mapping[str, Any]]]] = {
    "z-image": _z_image,
    "qwen-image": _qwen_image,
    "wan": _wan,
}
