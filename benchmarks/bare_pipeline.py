"""The stock diffusers pipeline, one picture after the other: what a script would do. Encodes and writes each file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bare_process import BareProcess, Making, Request, serve
from benchmarks.work import Work


def bare_pipeline(checkpoint: str, threads: int) -> BareProcess:
    return BareProcess(__name__, checkpoint, threads)


def load(checkpoint: str, threads: int, _: Path) -> Making:
    import numpy as np
    import torch

    from deployments.checkpoint_files import pipeline_folder
    from deployments.outputs import encode_picture

    torch.set_num_threads(threads)
    pipeline = stock_pipeline(*pipeline_folder(checkpoint), "cuda" if torch.cuda.is_available() else "cpu")
    dtype = str(pipeline.transformer.dtype).removeprefix("torch.")
    sizes: list[tuple[int, int]] = []
    decode = pipeline.vae.decode

    def seen(latents: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """What the decoder is given tells what was rendered."""
        decoded = decode(latents, *args, **kwargs)
        picture = decoded[0] if isinstance(decoded, tuple) else decoded.sample
        sizes.append((picture.shape[-1], picture.shape[-2]))
        return decoded

    pipeline.vae.decode = seen

    def make(requests: Sequence[Request], folder: Path) -> tuple[list[Path], list[Work]]:
        sizes.clear()
        files = []
        for number, request in enumerate(requests):
            pictures = pipeline(
                prompt=request["prompt"],
                width=request["width"],
                height=request["height"],
                num_inference_steps=request["steps"],
                generator=torch.Generator("cpu").manual_seed(request["seed"]),
                output="images",
            )
            data, _, extension = encode_picture(np.asarray(pictures[0]), request["output_format"])
            files.append(folder / f"{number}.{extension}")
            files[-1].write_bytes(data)
        work = [
            Work(size, request["steps"], dtype, torch.get_num_threads())
            for size, request in zip(sizes, requests, strict=True)
        ]
        return files, work

    return make


def stock_pipeline(folder: Path, local_only: bool, device: str) -> Any:
    """As its makers load it, but for the prompt rewriter, which the service runs elsewhere."""
    import torch
    from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    _silence(blocks)
    pipeline: Any = blocks.init_pipeline(str(folder))
    pipeline.load_components(dtype=torch.float32, local_files_only=local_only)
    if not hasattr(pipeline.tokenizer, "tokenizer"):
        pipeline.tokenizer.tokenizer = pipeline.tokenizer  # the stock block expects a processor around it
    return pipeline.to(device)


def _silence(block: Any) -> None:
    """No progress bars, however deep the loop lies."""
    if hasattr(block, "set_progress_bar_config"):
        block.set_progress_bar_config(disable=True)
    for inner in getattr(block, "sub_blocks", {}).values():
        _silence(inner)


if __name__ == "__main__":
    serve(load)
