"""Stock diffusers pipeline of a bundled checkpoint, as every peer uses it: for one image or a batch of one shape.

The pipeline takes one prompt per call. Batches follow Modular Diffusers' documentation for parts of a pipeline: the
text encoder's block is a separate pipeline, and the other blocks get its embeddings, here those of several prompts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import torch
from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
from transformers.utils import logging as transformers_logging

from benchmarks.peers.request import PID, PeerRequest, PeerSettings
from deployments.checkpoint_files import pipeline_folder
from deployments.families.pipeline import shared_components
from deployments.outputs import encode_image

_DTYPE = torch.float32


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

    def draw(self, request: PeerRequest) -> bytes:
        images = self._whole(prompt=request.prompt, generator=_generator(request), output="images", **_size(request))
        return _jpeg(images[0])

    def draw_batch(self, requests: Sequence[PeerRequest]) -> list[bytes]:
        """Draws the requests of each shape together. Returns the images in the order of the requests."""
        results: dict[PeerRequest, bytes] = {}
        for shape in dict.fromkeys(request.shape for request in requests):
            alike = [request for request in requests if request.shape == shape]
            if len(alike) == 1:
                results[alike[0]] = self.draw(alike[0])
                continue
            images = self._rest(
                prompt_embeds=torch.cat([self._text(prompt=each.prompt, output="prompt_embeds") for each in alike]),
                generator=[_generator(each) for each in alike],
                output="images",
                **_size(alike[0]),
            )
            results.update(zip(alike, map(_jpeg, images), strict=True))
        return [results[request] for request in requests]


def _jpeg(image: Any) -> bytes:
    return encode_image(np.asarray(image), "jpeg")[0]


def _blocks() -> Flux3DistilledAutoBlocks:
    """Returns the blocks without progress bars and without the prompt rewriter, which the service runs elsewhere."""
    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")
    _silence(blocks)
    return blocks


def _part(blocks: Any, whole: Any) -> Any:
    """Makes a pipeline of some blocks with the loaded components of `whole`."""
    part = blocks.init_pipeline()
    part.update_components(
        **{name: component for name, component in whole.components.items() if name in part.components}
    )
    return part


def _silence(block: Any) -> None:
    """Turns off the progress bars of a block and of the blocks inside it."""
    if hasattr(block, "set_progress_bar_config"):
        block.set_progress_bar_config(disable=True)
    for inner in getattr(block, "sub_blocks", {}).values():
        _silence(inner)


def _generator(request: PeerRequest) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(request.seed)


def _size(request: PeerRequest) -> dict[str, int]:
    return {"width": request.width, "height": request.height, "num_inference_steps": request.steps}


def main() -> None:
    """Serves one request at a time, as a script would."""
    settings = PeerSettings.from_environment()
    pipeline = StockPipeline(settings.checkpoint, int(settings.threads))

    class DrawHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            image = pipeline.draw(PeerRequest(**body))
            self.send_response(200)
            self.send_header(PID, str(os.getpid()))
            self.send_header("content-length", str(len(image)))
            self.end_headers()
            self.wfile.write(image)

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing: writing a line per call would be part of the measurement."""

    HTTPServer.request_queue_size = 1024
    HTTPServer(("127.0.0.1", int(settings.port)), DrawHandler).serve_forever()


if __name__ == "__main__":
    main()
