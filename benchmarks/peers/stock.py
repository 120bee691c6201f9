"""The stock diffusers pipeline of a bundled checkpoint, as every peer uses it: alone, or for a batch of one shape.

The pipeline takes one prompt a call. A batch is made the way Modular Diffusers documents for parts of a pipeline: the
text encoder's block is a pipeline of its own, and the others get its embeddings, here those of several prompts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
from transformers.utils import logging as transformers_logging

from benchmarks.peers.request import Request, groups
from benchmarks.work import Work
from deployments.checkpoint_files import pipeline_folder
from deployments.families.shared_components import shared_components
from deployments.outputs import encode_picture

_DTYPE = torch.float32
_OUTPUTS = ["images", "latents", "timesteps"]
_LATENT_PIXELS = 16
"""Per side of a latent: the autoencoder's 8, packed two by two."""


@dataclass(frozen=True, slots=True)
class Picture:
    jpeg: bytes
    work: Work
    started: float
    """When the model began with it, epoch seconds."""


class StockPipeline:
    def __init__(self, checkpoint: str, threads: int) -> None:
        """Sets torch's threads for the whole process."""
        torch.set_num_threads(threads)
        transformers_logging.disable_progress_bar()
        folder, local_only = pipeline_folder(checkpoint)
        self._whole: Any = _blocks().init_pipeline(str(folder))
        self._whole.update_components(**shared_components(folder, _DTYPE))
        self._whole.load_components(dtype=_DTYPE, local_files_only=local_only)
        if not hasattr(self._whole.tokenizer, "tokenizer"):
            self._whole.tokenizer.tokenizer = self._whole.tokenizer  # the stock block expects a processor around it
        blocks = _blocks()
        self._text = _part(blocks.sub_blocks.pop("text_encoder"), self._whole)
        self._rest = _part(blocks, self._whole)

    def draw(self, request: Request) -> Picture:
        """One picture, by one plain call."""
        started = time.time()
        made = self._whole(prompt=request.prompt, generator=_generator(request), output=_OUTPUTS, **_size(request))
        return self._pictures(made, started)[0]

    def draw_batch(self, requests: Sequence[Request]) -> list[Picture]:
        """In the order of the requests: those of one shape together, shapes one after the other."""
        drawn: dict[int, Picture] = {}
        for places in groups(requests):
            drawn.update(zip(places, self._draw_alike([requests[place] for place in places]), strict=True))
        return [drawn[place] for place in range(len(requests))]

    def _draw_alike(self, requests: Sequence[Request]) -> list[Picture]:
        if len(requests) == 1:
            return [self.draw(requests[0])]
        started = time.time()
        prompts = [self._text(prompt=request.prompt, output="prompt_embeds") for request in requests]
        made = self._rest(
            prompt_embeds=torch.cat(prompts),
            generator=[_generator(request) for request in requests],
            output=_OUTPUTS,
            **_size(requests[0]),
        )
        return self._pictures(made, started)

    def _pictures(self, made: dict[str, Any], started: float) -> list[Picture]:
        rows, columns = made["latents"].shape[-2:]
        work = Work(
            rendered=(columns * _LATENT_PIXELS, rows * _LATENT_PIXELS),
            steps=len(made["timesteps"]),
            dtype=str(self._whole.transformer.dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
        )
        return [Picture(encode_picture(np.asarray(one), "jpeg")[0], work, started) for one in made["images"]]


def save(picture: Picture, folder: Path, name: str) -> Path:
    path = folder / f"{name}.jpeg"
    path.write_bytes(picture.jpeg)
    return path


def _blocks() -> Flux3DistilledAutoBlocks:
    """Without the prompt rewriter, which the service runs elsewhere, and without progress bars."""
    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    _silence(blocks)
    return blocks


def _part(blocks: Any, whole: Any) -> Any:
    """A pipeline of some blocks, with the components that are loaded."""
    part = blocks.init_pipeline()
    part.update_components(**{name: made for name, made in whole.components.items() if name in part.components})
    return part


def _silence(block: Any) -> None:
    """No progress bars, however deep the loop lies."""
    if hasattr(block, "set_progress_bar_config"):
        block.set_progress_bar_config(disable=True)
    for inner in getattr(block, "sub_blocks", {}).values():
        _silence(inner)


def _generator(request: Request) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(request.seed)


def _size(request: Request) -> dict[str, int]:
    return {"width": request.width, "height": request.height, "num_inference_steps": request.steps}
