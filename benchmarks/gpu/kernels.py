"""Phases of single kernels: attention of packed rows, and linear layers in eight bits."""

from __future__ import annotations

import os
import platform
from contextlib import nullcontext
from typing import Final

import diffusers
import torch
import transformers
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.workbench import Skipped, Workbench, comparison, step_again
from deployments.families.packed.batch import ATTENTIONS, PackedSequence

_BATCHES: Final = {"8 x 1024 px": [4608] * 8, "4 sizes": [4608, 1536, 4352, 3584]}
"""Tokens per image of FLUX.2-klein-4B, including text."""
_SDPA: Final = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
_MAX_FP8: Final = 448.0


def machine(bench: Workbench) -> None:
    with bench.part("card") as metrics:
        card = torch.cuda.get_device_name() if bench.cuda else platform.machine()
        metrics |= {"card": card, "cores": os.cpu_count(), "python": platform.python_version()}
        metrics |= {module.__name__: module.__version__ for module in (torch, diffusers, transformers)}


def kernels(bench: Workbench) -> None:
    """Measures attention of 24 heads of 128 by each packed attention and by each of torch's kernels."""
    dtype, width, parts = (torch.bfloat16, 128, 1) if bench.cuda else (torch.float32, 32, 32)
    for label, lengths in _BATCHES.items():
        sequence = PackedSequence([length // parts for length in lengths], bench.device)
        q, k, v = (torch.randn(1, sequence.total, 24, width, device=bench.device, dtype=dtype) for _ in range(3))
        for backend in (*ATTENTIONS, *_SDPA):
            name = backend if isinstance(backend, str) else "sdpa_loop"
            with bench.part(
                f"attention of {label}: {backend if isinstance(backend, str) else backend.name}"
            ) as metrics:
                if backend != "sdpa_loop":
                    bench.needs_cuda()
                with nullcontext() if isinstance(backend, str) else sdpa_kernel(backend):
                    metrics |= bench.cost(ATTENTIONS[name], q, k, v, sequence)
                    output = ATTENTIONS[name](q, k, v, sequence)
                metrics["tflops"] = round(sum(4 * n**2 * 24 * width for n in sequence.lengths) / metrics["ms"] / 1e9, 1)
                metrics |= comparison(dtype, [output], [ATTENTIONS["sdpa_loop"](q, k, v, sequence)])


def fp8(bench: Workbench) -> None:
    """Measures FLUX.2-klein-4B with eight-bit linear layers in all blocks, with a scale per token and channel."""
    with bench.part("linear layers of all blocks") as metrics:
        bench.needs_cuda()
        if torch.cuda.get_device_capability() < (8, 9):
            raise Skipped("the GPU has no eight-bit multiplication")
        model, sizes = bench.model("klein-4b"), {"alone": [(1024, 1024)], "row": [(512, 512)] * bench.counts[-2]}
        states = {name: bench.states(model, each) for name, each in sizes.items()}
        plain = {name: bench.cost(step_again, model, each)["ms"] for name, each in states.items()}
        [before] = step_again(model, bench.states(model, sizes["alone"]))
        for name, layer in list(model.network.named_modules()):
            if isinstance(layer, nn.Linear) and "transformer_blocks" in name:
                parent, _, leaf = name.rpartition(".")
                setattr(model.network.get_submodule(parent), leaf, Fp8Linear(layer))
        [after] = step_again(model, bench.states(model, sizes["alone"]))
        metrics["velocity_difference"] = round(float((after - before).norm() / before.norm()), 4)
        for name, each in states.items():
            metrics[f"{name}_ms"] = bench.cost(step_again, model, each)["ms"]
            metrics[f"{name}_share"] = round(metrics[f"{name}_ms"] / plain[name], 3)
    bench.forget()


class Fp8Linear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = _quantize(linear.weight.detach())
        self.bias, self._weight, self._scale = linear.bias, weight.t(), scale.t().contiguous()

    def forward(self, x: Tensor) -> Tensor:
        tokens, scale = _quantize(x.flatten(0, -2))
        out = torch.ops.aten._scaled_mm(tokens, self._weight, scale, self._scale, out_dtype=x.dtype)
        return (out if self.bias is None else out + self.bias).unflatten(0, x.shape[:-1])


def _quantize(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the matrix in eight bits and the scale of each row, (N, 1) float32."""
    scale = (matrix.abs().amax(1, keepdim=True).float() / _MAX_FP8).clamp(min=1e-8)
    return (matrix / scale).to(torch.float8_e4m3fn), scale
