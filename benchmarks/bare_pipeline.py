"""The stock diffusers pipeline in a process of its own, one picture after the other: the yardstick for the service.

The process holds the pipeline between rounds, so that rounds can alternate with the service's. Its loop is what a
script would do: call the pipeline, encode the JPEG, write the file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from benchmarks.service import PROJECT, without_settings


class BarePipeline:
    """A context manager; inside it the pipeline is loaded."""

    def __init__(self, checkpoint: str, threads: int | None) -> None:
        self._arguments = [checkpoint, str(threads or os.cpu_count() or 1)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *self._arguments],
            cwd=PROJECT,
            env=without_settings(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def seconds_for(self, requests: list[dict[str, Any]]) -> float:
        """How long these pictures take, files written."""
        assert self._process is not None
        assert self._process.stdin is not None
        print(json.dumps(requests), file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the bare pipeline died")
        return line


def serve(checkpoint: str, threads: int) -> None:
    """Lines of requests in, seconds out, until the end of input."""
    import numpy as np
    import torch

    from deployments.checkpoint_files import pipeline_folder
    from deployments.outputs import encode_picture

    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pipeline = _load(*pipeline_folder(checkpoint), device)
    print("loaded", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            requests = json.loads(line)
            began = time.perf_counter()
            for number, request in enumerate(requests):
                generator = torch.Generator("cpu").manual_seed(request["seed"])
                pictures = pipeline(
                    prompt=request["prompt"],
                    width=request["width"],
                    height=request["height"],
                    num_inference_steps=request["steps"],
                    generator=generator,
                    output="images",
                )
                data, _, extension = encode_picture(np.asarray(pictures[0]), "jpeg")
                (Path(folder) / f"{number}.{extension}").write_bytes(data)
            print(time.perf_counter() - began, flush=True)


def _load(folder: Path, local_only: bool, device: str) -> Any:
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
    serve(sys.argv[1], int(sys.argv[2]))
