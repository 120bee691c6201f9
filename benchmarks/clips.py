"""How long videos take and how much memory they need, on the bundled model.

Each kind is made in a process of its own, through the engine and a local object store, set up as `configs/local.yaml`
has it. A continuation goes on from the longest clip that is taken.
"""

from __future__ import annotations

import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.benchmark import Benchmark
from benchmarks.report import Report, Target
from deployments import checkpoints
from deployments.backends.active_clip import ActiveClip
from deployments.backends.clips import ClipBackend, FetchedClip
from deployments.contract.clip import FPS, Clip
from deployments.contract.events import Done, Event
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.families.clip_family import ClipFamily
from serve_app.config import settings as service_settings

HD: Final = (1280, 704)
FHD: Final = (1920, 1088)
MODEL: Final = "ltx2"


@dataclass(frozen=True)
class Kind:
    name: str
    size: tuple[int, int]
    seconds: int
    steps: int = 8
    start_s: int = 0
    """Of the clip that it goes on from."""
    draft: bool = False


@dataclass(frozen=True)
class Figures:
    seconds: float
    peak_gib: float
    megabytes: float


@dataclass(frozen=True, slots=True)
class Plan:
    kinds: tuple[Kind, ...] = (
        Kind("draft, 5 s, hd", (HD[0] // 2, HD[1] // 2), 5, draft=True),
        Kind("5 s, hd", HD, 5),
        Kind("5 s, fhd", FHD, 5),
        Kind("20 s, fhd", FHD, 20),
        Kind("15 s after 20 s, fhd", FHD, 15, start_s=20),
    )
    config: str = "configs/local.yaml"
    """The profile whose settings count."""


def measure(plan: Plan, console: Console) -> Report:
    table = Table("video", "made in, s", "peak memory, GiB", "file, MB", title="Videos")
    found: dict[str, Figures] = {}
    for kind in plan.kinds:
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            found[kind.name] = made = alone.submit(figures, kind, Path(plan.config)).result()
        table.add_row(kind.name, f"{made.seconds:.1f}", f"{made.peak_gib:.2f}", f"{made.megabytes:.1f}")
    console.print(table)
    quickest, largest = found[plan.kinds[1].name], max(each.peak_gib for each in found.values())
    return Report(
        figures={name: vars(each) for name, each in found.items()},
        targets=[
            Target(f"a video of {plan.kinds[1].name}, engine alone", quickest.seconds, 30, "s"),
            Target("peak memory of the longest", largest, 4, "GiB"),
        ],
    )


def figures(kind: Kind, config: Path) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        store = ObjectStore(Path(folder).as_uri())
        engine = Engine(_backend(config, store), max_running=1, max_batch=1)
        start = None
        if kind.start_s:
            start = _made(engine, Kind("start", kind.size, kind.start_s), None).key
        began = time.perf_counter()
        output = _made(engine, kind, start)
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return Figures(seconds, peak, output.size / 1e6)


def _backend(config: Path, store: ObjectStore) -> ClipBackend:
    chosen = service_settings.load(config).model(MODEL)
    family = checkpoints.load(
        chosen.checkpoint or "",
        device="cpu",
        dtype=chosen.dtype,
        render_side=chosen.render_side,
        enlarge=chosen.enlarge,
    ).family
    assert isinstance(family, ClipFamily)
    return ClipBackend(family, store, MODEL, enlarge=chosen.enlarge)


def _made(engine: Engine[FetchedClip, ActiveClip], kind: Kind, start: str | None) -> Output:
    events: list[Event] = []
    clip = Clip(FPS * kind.seconds, f"checkpoints/{kind.name}", start=start, draft=kind.draft)
    job = GenerationJob(
        id=kind.name,
        attempt=1,
        prompt="a red circle moves to the right on a dark blue background",
        width=kind.size[0],
        height=kind.size[1],
        steps=kind.steps,
        seed=1,
        output_format="mp4",
        output_prefix=kind.name.replace(" ", "-"),
        clip=clip,
    )
    engine.submit(job, events.append)
    engine.run_until_idle()
    done = events[-1]
    assert isinstance(done, Done), done
    return done.output


BENCHMARK = Benchmark(
    "clips",
    "how long videos take and how much memory they need, engine alone",
    Plan(),
    Plan((Kind("draft, 1 s", (128, 128), 1, steps=2, draft=True), Kind("1 s", (128, 128), 1, steps=2))),
    measure,
)
