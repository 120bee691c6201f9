"""The service's own step engine, without the service: all requests of a round at once, files in a local store."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bare_process import BareProcess, Making, Request, serve
from benchmarks.service import CONFIG, MODEL
from benchmarks.work import Work
from deployments.contract.events import LAST, Done, Event
from deployments.contract.job import GenerationJob
from deployments.contract.model import ModelSpec
from serve_app.config import settings


def bare_engine(checkpoint: str, threads: int) -> BareProcess:
    return BareProcess(__name__, checkpoint, threads)


def load(checkpoint: str, threads: int, objects: Path) -> Making:
    """With as many in a batch and as many previews as the profile says."""
    import torch

    from deployments.families.canvas import canvas_for
    from deployments.families.flux import TOKEN
    from deployments.media_model import engine_of

    chosen = settings.load(CONFIG).models[MODEL]
    spec = ModelSpec(
        checkpoint,
        objects.as_uri(),
        device="cpu",
        dtype="float32",
        threads=threads,
        max_running=chosen.max_running,
        max_batch=chosen.max_batch,
        preview_every=chosen.preview_every,
        preview_interval_s=chosen.preview_interval_s,
    )
    engine = engine_of(spec)
    engine.start()

    def make(requests: Sequence[Request], folder: Path) -> tuple[list[Path], list[Work]]:
        left = threading.Semaphore(0)
        last: dict[int, Event] = {}

        def hear(number: int, event: Event) -> None:
            if isinstance(event, LAST):
                last[number] = event
                left.release()

        for number, request in enumerate(requests):
            name = f"{folder.name}/{number}"
            job = GenerationJob(id=name, attempt=1, output_prefix=name, **request)
            engine.submit(job, lambda event, number=number: hear(number, event))
        for _ in requests:
            left.acquire()
        return [_file(last[number]) for number in range(len(requests))], list(map(_work, requests))

    def _file(event: Event) -> Path:
        if not isinstance(event, Done):
            raise RuntimeError(f"the engine gave {event}")
        return objects / event.output.key

    def _work(request: Request) -> Work:
        height, width = canvas_for(request["width"], request["height"], TOKEN).size
        return Work((width, height), request["steps"], "float32", torch.get_num_threads())

    return make


if __name__ == "__main__":
    serve(load)
