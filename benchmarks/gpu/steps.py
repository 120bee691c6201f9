"""Phases of one model's steps: correctness, and cost against stock steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import safetensors.torch
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from benchmarks.gpu.models import PACKED, BenchModel, video_transformer
from benchmarks.gpu.workbench import MIXED, Metrics, Sizes, Skipped, Workbench, comparison, step_again
from deployments.contract.job import Adapter
from deployments.families.flux import to_grid
from deployments.families.flux1 import Flux1
from deployments.families.packed.batch import ATTENTIONS, PackedSequence, StepInputs
from deployments.families.state import State
from deployments.families.step import step
from deployments.lora.segments import AppliedAdapter
from deployments.lora.weights import AdapterWeights, read_weights

_NATIVE: Final = ("native", "_native_cudnn", "_native_flash")
_ALONE: Final = (*_NATIVE, "_native_efficient", "xformers", "flash", "_flash_3", "sage")
"""Diffusers' names of attentions for images that step alone."""
_VIDEO: Final = (16, 22, 40, 126)
"""Latents of a video of 121 frames, 1280 x 704 px: frames, rows, columns and audio."""


def correctness(bench: Workbench, model: BenchModel) -> None:
    """Compares steps with the stock pipeline and rows with single images. The last attention that works stays on."""
    with bench.part("alone against the stock pipeline") as metrics:
        comparisons: dict[int, Metrics] = {}
        for steps in (1, 4):
            [state] = bench.states(model, [(1024, 1024)], steps)
            latents = _stock_latents(model, state)
            while state.i < state.total_steps:
                step(model.family, [state])
            comparisons[steps] = comparison(model.network.dtype, [state.x], [latents])
        # In bfloat16 the pipeline rounds latents and times between steps, so later steps start from other values.
        metrics |= comparisons[1] | {"difference_after_4_steps": comparisons[4]["difference"]}
    for name in reversed(PACKED):
        with bench.part(f"row against alone, {name}") as metrics:
            metrics |= _compare_with_alone(bench, model, name)
    if not isinstance(model.family, Flux1):
        with bench.part("row with references against alone") as metrics:
            name = PACKED[0] if bench.cuda else PACKED[-1]
            metrics |= _compare_with_alone(bench, model, name, references=(1, 0, 2, 0))


def costs(bench: Workbench, model: BenchModel, counts: Sequence[int]) -> None:
    with bench.part("weights") as metrics:
        parts = {"transformer": model.network} if model.pipeline is None else model.pipeline.components
        metrics |= {f"{name}_gb": _gb(part) for name, part in parts.items() if isinstance(part, nn.Module)}
    for side in (512, 1024):
        for count in counts:
            _measure_batch(bench, model, f"row of {count} x {side} px", [(side, side)] * count)
        with bench.part(f"stock pipeline, 1 x {side} px") as metrics:
            states = [bench.states(model, [(side, side)], steps)[0] for steps in (2, 6)]
            brief, longer = (bench.cost(_stock_latents, model, state)["ms"] for state in states)
            metrics |= {"ms": round((longer - brief) / 4, 2), "steps_per_s": round(4000 / (longer - brief), 2)}
    _measure_batch(bench, model, "row of 4 sizes", MIXED)
    _measure_batch(bench, model, "row of 1 x 2048 px", [(2048, 2048)])
    for side in (1024, 2048, 4096):
        with bench.part(f"decode {side} px") as metrics:
            metrics |= bench.cost(model.family.finish, *bench.states(model, [(side, side)]), rounds=1)
    with bench.part("preview") as metrics:
        states = bench.states(model, [(1024, 1024)])
        step_again(model, states)
        metrics |= bench.cost(model.family.preview, *states)


def attentions(bench: Workbench, model: BenchModel, names: Sequence[str] = _ALONE) -> str:
    """Measures attentions for an image alone. Returns diffusers' name of the fastest correct one."""
    times_ms: dict[str, float] = {}
    for name in names:
        with bench.part(f"alone, attention {name}") as metrics:
            if name != "native":
                bench.needs_cuda()
            expected, states = (bench.states(model, [(1024, 1024)]) for _ in range(2))
            expected = step_again(model, expected)
            try:
                model.network.set_attention_backend(name)
            except RuntimeError as missing:  # its package
                raise Skipped(str(missing)) from missing
            try:
                metrics |= comparison(model.network.dtype, step_again(model, states), expected)
                metrics |= bench.cost(step_again, model, states)
            finally:
                model.network.set_attention_backend("native")
            times_ms |= {name: metrics["ms"]} if metrics["passed"] else {}
    return min(times_ms, key=lambda name: times_ms[name], default="native")


def compilation(bench: Workbench, model: BenchModel) -> None:
    """Measures static batches at their best: compiled, with the fastest attention of an image alone."""
    fastest = attentions(bench, model, _NATIVE)
    model.network.set_attention_backend(fastest)
    counters.clear()
    backend: Any = {} if bench.cuda else {"backend": "eager"}
    model.network.compile_repeated_blocks(fullgraph=True, dynamic=True, **backend)
    for width, height in (*MIXED, (2048, 1024)):
        with bench.part(f"1 x {width} x {height} px") as metrics:
            states = bench.states(model, [(width, height)])
            metrics |= {"attention": fastest, "first_s": round(bench.seconds(step_again, model, states), 2)}
            metrics |= bench.cost(step_again, model, states, images=1)
            metrics["graphs"] = counters["stats"]["unique_graphs"]
    for side in (512, 1024):
        for count in bench.counts:
            with bench.part(f"static batch of {count} x {side} px") as metrics:
                batch = _static(bench, bench.states(model, [(side, side)] * count))
                metrics |= bench.cost(model.family.velocity, *batch, images=count)
    bench.forget()


def adapters(bench: Workbench, model: BenchModel) -> None:
    files = [_adapter(model.network, seed) for seed in range(4)]
    weights = [read_weights(file, {"transformer": model.network}) for file in files]
    with bench.part("load, nothing beside") as metrics:
        metrics |= {
            "s": round(bench.seconds(read_weights, files[0], {"transformer": model.network}), 3),
            "mb": len(files[0]) // 10**6,
        }
    with bench.part("load beside steps") as metrics:
        states, done = bench.states(model, [(1024, 1024)]), threading.Event()
        thread = threading.Thread(target=lambda: [step_again(model, states) for _ in iter(done.is_set, True)])
        thread.start()
        time.sleep(0.2)
        started_at = time.perf_counter()
        read_weights(files[0], {"transformer": model.network})
        metrics["s"] = round(time.perf_counter() - started_at, 3)
        done.set()
        thread.join()
    with bench.part("row of two adapters against alone") as metrics:
        two = MIXED[:2]
        alone = [step_again(model, [state])[0] for state in _with_adapters(bench.states(model, two), weights[:2])]
        together, wrong = (
            step_again(model, _with_adapters(bench.states(model, two), each)) for each in (weights[:2], weights[2:])
        )
        metrics |= comparison(model.network.dtype, together, alone, wrong)
    for count in (0, 1, 4):
        several = _with_adapters(bench.states(model, [(512, 512)] * 8), weights[:count])
        with bench.part(f"row of 8 x 512 px, {count} adapters") as metrics:
            metrics |= bench.cost(step_again, model, several, images=8)


@torch.inference_mode()
def video(bench: Workbench) -> None:
    """Measures the transformer of LTX-2.3 alone, with noise as its prompt."""
    bench.forget()
    network = video_transformer(bench.device, tiny=bench.tiny)
    with bench.part("step of a video of 5 s, 1280 x 704 px") as metrics:
        frames, rows, columns, audio = (each // 8 + 1 for each in _VIDEO) if bench.tiny else _VIDEO
        config, tokens, text = network.config, frames * rows * columns, 1024
        at, mask = torch.full((1, 1), 500.0, device=bench.device), torch.ones(1, text, device=bench.device)
        shapes = {
            "hidden_states": (tokens, config.in_channels),
            "audio_hidden_states": (audio, config.audio_in_channels),
            "encoder_hidden_states": (text, config.cross_attention_dim),
            "audio_encoder_hidden_states": (text, config.audio_cross_attention_dim),
        }
        inputs: Metrics = {
            name: torch.randn(1, *each, device=bench.device, dtype=network.dtype) for name, each in shapes.items()
        }
        inputs |= {"timestep": at.expand(1, tokens), "audio_timestep": at, "sigma": at[0], "audio_sigma": at[0]}
        inputs |= {"encoder_attention_mask": mask, "audio_encoder_attention_mask": mask}
        inputs["video_coords"] = network.rope.prepare_video_coords(1, frames, rows, columns, bench.device, fps=24.0)
        inputs["audio_coords"] = network.audio_rope.prepare_audio_coords(1, audio, bench.device)
        inputs |= {"use_cross_timestep": bool(config.cross_attn_mod), "return_dict": False}
        metrics |= {"weights_gb": _gb(network), "tokens": tokens}
        metrics |= bench.cost(lambda: network(**inputs), images=1)


def _gb(network: nn.Module) -> float:
    return round(sum(parameter.nbytes for parameter in network.parameters()) / 1e9, 2)


def _stock_latents(model: BenchModel, state: State) -> Tensor:
    """Returns the latents that the stock pipeline makes from the noise and the prompt of `state`."""
    if model.pipeline is None:
        raise Skipped("its stock pipeline needs images, or is modular; unit tests compare it bit by bit")
    latents: list[Tensor] = []

    def on_step_end(_pipeline: Any, _step: int, _time: Tensor, tensors: dict[str, Any]) -> dict[str, Any]:
        latents.append(tensors["latents"])
        return tensors

    params: Metrics = {"prompt_embeds": state.per["text"], "latents": to_grid(state.x, state.grid)}
    if isinstance(model.family, Flux1):
        params |= {"pooled_prompt_embeds": state.per["pooled"], "latents": state.x}
    params |= {"guidance_scale": 1.0 if state.guidance is None else float(state.guidance[0])}
    params |= {
        "width": state.job.request.width,
        "height": state.job.request.height,
        "num_inference_steps": state.job.request.steps,
    }
    model.pipeline(**params, output_type="latent", callback_on_step_end=on_step_end)
    return latents[-1]


def _compare_with_alone(bench: Workbench, model: BenchModel, attention: str, references: Sequence[int] = ()) -> Metrics:
    if attention != "sdpa_loop":
        bench.needs_cuda()
    alone = [step_again(model, [state])[0] for state in bench.states(model, MIXED, references=references)]
    model.family.use_packed_attention(_across)
    wrong = step_again(model, bench.states(model, MIXED, references=references))
    try:
        model.family.use_packed_attention(ATTENTIONS[attention])
        states = bench.states(model, MIXED, references=references)
        result = comparison(model.network.dtype, step_again(model, states), alone, wrong)
        return result | bench.cost(step_again, model, states)
    except Exception:
        model.family.use_packed_attention(ATTENTIONS["sdpa_loop"])
        raise


def _across(q: Tensor, k: Tensor, v: Tensor, sequence: PackedSequence) -> Tensor:
    """Wrong attention, as a control: every image attends to the others."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def _measure_batch(bench: Workbench, model: BenchModel, name: str, sizes: Sizes) -> None:
    with bench.part(name) as metrics:
        states = bench.states(model, sizes)
        metrics |= bench.cost(step_again, model, states, images=len(sizes))
        started_at, cpu_before = time.perf_counter(), time.thread_time()
        step_again(model, states)
        metrics["thread_cpu_share"] = round((time.thread_time() - cpu_before) / (time.perf_counter() - started_at), 2)


def _static(bench: Workbench, states: Sequence[State]) -> tuple[State, StepInputs]:
    """Returns images of one shape as a batch for the stock forward, and its inputs of the step."""
    first, count = states[0], len(states)
    per = {name: torch.cat([state.per[name] for state in states]) for name in first.per}
    times = [first.t[:1], first.t[1:2], *([] if first.guidance is None else [first.guidance[:1]])]
    inputs = StepInputs(*(each.expand(count).to(bench.device) for each in times))
    return replace(first, x=torch.cat([state.x for state in states]), per=per), inputs


def _adapter(network: nn.Module, seed: int) -> bytes:
    """Returns an adapter file of rank 16 for all linear layers of the blocks."""
    generator, matrices = torch.Generator().manual_seed(seed), {}
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Linear) and "transformer_blocks" in name:
            for part, shape in (("A", (16, layer.in_features)), ("B", (layer.out_features, 16))):
                matrix = torch.randn(shape, generator=generator) / shape[1] ** 0.5
                matrices[f"transformer.{name}.lora_{part}.weight"] = matrix.to(torch.bfloat16)
    return safetensors.torch.save(matrices)


def _with_adapters(states: Sequence[State], weights: Sequence[AdapterWeights]) -> Sequence[State]:
    """Applies an adapter to each state, so that equal ones are neighbours."""
    for number, state in enumerate(states if weights else ()):
        index = number * len(weights) // len(states)
        state.adapter = AppliedAdapter(weights[index].layers, 1.0)
        state.job = replace(state.job, adapter=Adapter(str(index), "", 1.0))
    return states
