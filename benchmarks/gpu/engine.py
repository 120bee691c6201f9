"""Phases of the step engine over one model: images per second, decoding beside steps, cancelling, a full memory."""

from __future__ import annotations

import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, Final
from unittest.mock import patch
from uuid import uuid4

import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline

from benchmarks.gpu.models import BenchModel, load
from benchmarks.gpu.workbench import MIXED, Metrics, Sizes, Skipped, Workbench, step_again
from deployments.backends.images import DiffusionBackend
from deployments.contract.events import LAST, Done, Event, Progress
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.torch_process import SideStream

_FREE_BYTES: Final = 12 * 10**9
"""Free bytes on a device whose memory counts as full."""
_TIMEOUT_S: Final = 60.0


def engine(bench: Workbench, model: BenchModel) -> None:
    total = 4 if bench.tiny else 24
    sizes: dict[str, Sizes] = {f"{side} px": [(side, side)] * total for side in (512, 1024)}
    for label, each in (sizes | {"4 sizes": [*MIXED] * (total // 4)}).items():
        for name, settings in (("batch 1", {"max_batch": 1}), ("batch 8", {}), ("previews", {"preview_every": 0.25})):
            with bench.part(f"images of {label}, {name}") as metrics, _running(bench, model, **settings) as running:
                running.make(each[:2])
                metrics |= running.make(each)
    for side, count in ((512, 1), (512, 8), (1024, 1), (1024, 8)):
        with bench.part(f"images of {side} px, stock pipeline, {count} at a time") as metrics:
            if getattr(model.pipeline, "text_encoder", None) is None:
                raise Skipped("the model has no stock pipeline with a text encoder")
            params: Metrics = {"prompt": [f"image {number} of a red fox in the snow" for number in range(count)]}
            params |= {"width": bench.pixels(side), "height": bench.pixels(side), "num_inference_steps": 4}
            params["max_sequence_length"] = bench.states(model, [(side, side)])[0].per["text"].shape[1]
            cost = bench.cost(lambda params=params: model.pipeline(**params), rounds=2)
            metrics |= {"images_per_s": round(1e3 * count / cost["ms"], 2)} | cost
    with bench.part("decode beside steps") as metrics:
        metrics |= _decode_beside_steps(bench, model)
    with bench.part("cancel") as metrics, _running(bench, model) as running:
        stepped = threading.Event()
        [job] = bench.jobs([(1024, 1024)], steps=200)
        handle = running.engine.submit(job, lambda event: stepped.set() if isinstance(event, Progress) else None)
        assert stepped.wait(_TIMEOUT_S), "the job took no step"
        started_at = time.perf_counter()
        running.engine.cancel(handle)
        while running.engine.running:
            time.sleep(0.001)
        metrics |= {"gone_ms": round(1e3 * (time.perf_counter() - started_at), 2)} | running.make([(512, 512)])
    with bench.part("out of memory") as metrics, _fill_memory(bench, model), _running(bench, model) as running:
        metrics |= running.make([(2048, 2048)] * min(total, 8), steps=2)


def loading(bench: Workbench) -> None:
    """Loads the model from a folder in the hub's layout, whose files are in the page cache."""
    with bench.part("load") as metrics, tempfile.TemporaryDirectory() as folder:
        bench.model("klein-4b").pipeline.save_pretrained(folder)
        bench.forget()
        started_at = time.perf_counter()
        model, loaded_model = load(folder, bench.device, bench.pixels(2048))
        metrics |= {"as_the_service_s": round(time.perf_counter() - started_at, 2), **loaded_model.setup}
        metrics["memory_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 1)
        del model, loaded_model
        bench.clear()
        options = {"torch_dtype": torch.bfloat16, "device_map": "cuda" if bench.cuda else None}
        direct_s = bench.seconds(lambda: DiffusionPipeline.from_pretrained(folder, **options))
        metrics["straight_to_the_device_s"] = round(direct_s, 2)


class Runner:
    def __init__(self, bench: Workbench, model: BenchModel, folder: str, settings: dict[str, Any]) -> None:
        backend = DiffusionBackend(model.family, ObjectStore(Path(folder).as_uri()))
        self.engine = Engine(backend, **{"max_running": 16, "max_batch": 8, **settings})
        self.engine.start()
        self._bench = bench

    def make(self, sizes: Sizes, steps: int = 4) -> Metrics:
        """Makes images of new prompts. Raises RuntimeError if a job fails."""
        self._bench.check_deadline()
        events: Queue[Event] = Queue()
        started_at, cpu_s = time.perf_counter(), time.process_time()
        for job in self._bench.jobs(sizes, steps, prompt_tag=uuid4().hex):
            self.engine.submit(job, lambda event: events.put(event) if isinstance(event, LAST) else None)
        last = [events.get(timeout=_TIMEOUT_S) for _ in sizes]
        elapsed_s, cpu_s = time.perf_counter() - started_at, time.process_time() - cpu_s
        if failures := [event for event in last if not isinstance(event, Done)]:
            raise RuntimeError(f"{len(failures)} of {len(last)} jobs ended with {failures[0]}")
        return {"images_per_s": round(len(sizes) / elapsed_s, 2), "cpu_s_an_image": round(cpu_s / len(sizes), 3)}


@contextmanager
def _running(bench: Workbench, model: BenchModel, **settings: Any) -> Iterator[Runner]:
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(bench, model, folder, settings)
        try:
            yield runner
        finally:
            runner.engine.stop(_TIMEOUT_S)


@contextmanager
def _fill_memory(bench: Workbench, model: BenchModel) -> Iterator[None]:
    """Leaves too little memory for a row of large images."""
    if not bench.cuda:
        with patch.object(model.family, "packed_velocity", side_effect=torch.OutOfMemoryError("as on a full device")):
            yield
        return
    bench.clear()
    ballast = torch.empty(max(0, torch.cuda.mem_get_info()[0] - _FREE_BYTES), dtype=torch.uint8, device=bench.device)
    yield
    del ballast


def _decode_beside_steps(bench: Workbench, model: BenchModel) -> Metrics:
    stepping, [state] = (bench.states(model, [(1024, 1024)]) for _ in range(2))
    stream, done, alone_ms = SideStream(bench.device), threading.Event(), bench.cost(step_again, model, stepping)["ms"]

    def decode() -> None:
        while not done.is_set():
            with stream.activate():
                model.family.finish(state)

    thread = threading.Thread(target=decode)
    thread.start()
    started_at, steps = time.perf_counter(), 4 if bench.tiny else 20
    for _ in range(steps):  # each waits for its own stream, not for the whole device
        step_again(model, stepping)
    beside_ms = 1e3 * (time.perf_counter() - started_at) / steps
    done.set()
    thread.join()
    return {"step_alone_ms": alone_ms, "step_beside_ms": round(beside_ms, 2)}
