"""The commands `gen-serve plan` and `gen-serve profile`: the number of replicas that a load needs."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, cast

import typer

from serve_app.cli.output import Cell, say, show, show_json
from serve_app.cli.service import Config, Json, ServiceError
from serve_app.cli.store import load_settings, open_redis
from serve_app.config.model_settings import AutoscalingSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gen_serve_bench.workload import Pattern, Shape

    from serve_app.config.catalog import Catalog
    from serve_app.config.settings import Settings
    from serve_app.planning.plan import PlanRow
    from serve_app.planning.profile import ModelProfile
    from serve_app.planning.simulation import SimulatedTask

    PastRequest: TypeAlias = tuple[float, Shape, str]
    """Seconds from the start, shape, tenant."""

_COLUMNS: Final = ("replicas", "p50 s", "p95 s", "p99 s", "goodput/s", "busy", "GPU hours", "cost", "meets")
_PROFILE_SIDES: Final = (512, 1024)
_PROFILE_STEPS: Final = 8
_PROMPT: Final = "a quiet harbour at dawn"
_MODEL = Annotated[str, typer.Argument(help="A model of the catalog.", show_default=False)]


def plan(
    model: _MODEL,
    rate: Annotated[float | None, typer.Option(help="Requests per second.", show_default=False)] = None,
    arrivals: Annotated[str, typer.Option(help="poisson, constant, bursts or diurnal.")] = "poisson",
    duration: Annotated[float, typer.Option(help="Duration of the load in seconds.")] = 3600.0,
    period: Annotated[
        float | None, typer.Option(help="Seconds between bursts, or length of a day; by default --duration.")
    ] = None,
    size: Annotated[str, typer.Option(help="Size of the images.")] = "1024x1024",
    steps: Annotated[int | None, typer.Option(help="Steps per image; by default the model's.")] = None,
    seconds: Annotated[int | None, typer.Option(help="Length of the videos in seconds.")] = None,
    mix: Annotated[Path | None, typer.Option(help="A mix file of gen-serve bench; replaces --size.")] = None,
    trace: Annotated[Path | None, typer.Option(help="A trace file of gen-serve bench record.")] = None,
    since: Annotated[
        float, typer.Option(help="Seconds of the service's history to replay, without --rate and --trace.")
    ] = 3600,
    slo: Annotated[list[str] | None, typer.Option(help="An objective like p99=20s; repeatable.")] = None,
    max_replicas: Annotated[int, typer.Option(help="Largest number of replicas to try.", min=1)] = 100,
    autoscale: Annotated[str | None, typer.Option(help="MIN-MAX: also try autoscaling between these bounds.")] = None,
    target_wait: Annotated[float | None, typer.Option(help="target_wait_s with --autoscale.")] = None,
    gpu_price: Annotated[float, typer.Option(help="Price of a replica's hour.", min=0)] = 0.0,
    losses_per_hour: Annotated[
        float, typer.Option(help="Mean losses of a replica per hour, on spot nodes.", min=0)
    ] = 0.0,
    profile_file: Annotated[Path | None, typer.Option("--profile", help="A file of gen-serve profile.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the plan as SVG to this file.", show_default=False)] = None,
    seed: int = 0,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict latency and cost by number of replicas, and find the cheapest that meets the objectives.

    The load is `--rate`, a `--trace`, or the service's requests of the last hour. The durations are those that replicas
    have reported to the service, or a `--profile`.

    \b
    gen-serve plan flux3-klein --rate 4 --size 1024x1024 --steps 8 --slo p99=20s --gpu-price 2.5
    gen-serve plan flux3-klein --trace trace.jsonl --slo p95=10s --autoscale 1-20 --target-wait 30
    """
    try:
        from gen_serve_bench.workload import Endpoint, Mix, Size, load_mix, schedule
    except ModuleNotFoundError:
        raise ServiceError("gen-serve plan needs the load generator: pip install ./benchmarks/load") from None

    from serve_app.planning.plan import Objective, Planner, cheapest, draw

    settings, catalog = _load(model, config)
    objectives = [Objective.parse(each) for each in slo or []]
    scaling = None
    if autoscale is not None or target_wait is not None:
        scaling = _scaling(autoscale, target_wait, settings.model(model).autoscaling_config)
    if rate is not None:
        moments = schedule(cast("Pattern", arrivals), rate, duration, seed, period=period or duration)
        uniform = Endpoint(endpoint="any", sizes=[Size.parse(size)], seconds=[seconds] if seconds else [])
        workload = load_mix(mix) if mix else Mix(endpoints=[uniform])
        requests = [(each.moment, each.shape, each.tenant) for each in workload.requests(moments, seed)]
    else:
        requests = _past_requests(trace, since, config, model, catalog)
    profile = _profile(profile_file, model, settings, catalog, config)
    planner = Planner(
        to_tasks(requests, settings.model(model).steps or catalog.models[model].steps or 1, steps),
        profile,
        objectives,
        gpu_price=gpu_price,
        losses_per_hour=losses_per_hour,
        duration_s=0.0 if rate is None else duration,
        seed=seed,
    )
    rows = planner.search_fixed(max_replicas, on_row=lambda row: say(f"simulated {row.replicas} replicas"))
    if scaling is not None:
        rows.append(planner.evaluate(scaling))
    choice = cheapest(rows)
    if plot is not None:
        plot.write_text(draw(rows, objectives))
    if as_json:
        document = {"profile": profile.model_dump(), "rows": [asdict(row) for row in rows]}
        show_json(document | {"cheapest": choice and choice.replicas})
        return
    show(_COLUMNS, [_cells(row) for row in rows])
    if objectives:
        answer = choice.replicas if choice else f"none up to {max_replicas}"
        print(f"cheapest that meets {', '.join(slo or [])}: {answer}")


def profile(
    model: _MODEL,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the profile.", show_default=False)],
    config: Config = None,
) -> None:
    """Load a model on this machine's device and measure the durations of its stages. Needs no service.

    \b
    gen-serve profile flux3-klein -o klein.json
    """
    from deployments.contract.counts import LOAD_S, LOADS
    from deployments.contract.events import Event, Failed, Interrupted
    from deployments.contract.job import GenerationJob
    from deployments.contract.request import ResolvedRequest
    from deployments.engine_factory import build_engine
    from serve_app.config.specs import model_spec
    from serve_app.planning.profile import ModelProfile

    settings, catalog = _load(model, config)
    spec, failures = model_spec(model, catalog, settings, None), list[str]()

    def emit(event: Event) -> None:
        if isinstance(event, (Failed, Interrupted)):
            failures.append(event.reason)

    with tempfile.TemporaryDirectory() as folder:
        started_at = time.monotonic()
        engine = build_engine(spec.model_copy(update={"objects_url": f"file://{folder}", "objects_options": {}}))
        load_s = time.monotonic() - started_at
        engine.start()
        for batch_size in sorted({1, max(1, spec.max_batch // 2), spec.max_batch}):
            for side in _PROFILE_SIDES:
                names = [f"profile/{batch_size}-{side}-{number}" for number in range(batch_size)]
                request = ResolvedRequest(
                    prompt=_PROMPT, width=side, height=side, steps=_PROFILE_STEPS, seed=1, output_format="jpeg"
                )
                jobs = [GenerationJob(name, 1, request, name) for name in names]
                handles = [engine.submit(job, emit) for job in jobs]
                while not all(handle.ended for handle in handles):
                    time.sleep(0.05)
                say(f"measured batches of {batch_size} at {side} px")
        measured = dict(engine.counts) | {LOADS: 1, LOAD_S: load_s}
        engine.stop()
    if failures:
        raise ServiceError(f"the model failed: {failures[0]}")
    result = ModelProfile.from_counts(measured, max_batch=spec.max_batch, max_running=spec.max_running)
    output.write_text(result.model_dump_json(indent=2) + "\n")
    print(f"{output}: a step takes {result.fixed_s:.4g} s plus {result.per_megapixel_s:.4g} s per megapixel")


def _load(model: str, config: Path | None) -> tuple[Settings, Catalog]:
    """Raises ValueError if the catalog has no such model."""
    from serve_app.config import catalog as catalogs

    settings = load_settings(config)
    catalog = catalogs.load(settings)
    if model not in catalog.models:
        raise ValueError(f"there is no model {model}; there are {', '.join(catalog.models)}")
    return settings, catalog


def _past_requests(
    trace: Path | None, since: float, config: Path | None, model: str, catalog: Catalog
) -> list[PastRequest]:
    from gen_serve_bench.workload import read_trace

    from serve_app.cli.recording import read_arrivals

    arrivals = read_trace(trace) if trace else asyncio.run(read_arrivals(config, time.time() - since, None))[0]
    endpoints = {name for name, endpoint in catalog.served.items() if model in endpoint.models}
    requests = [(each.offset, each.shape, str(each.tenant)) for each in arrivals if each.endpoint in endpoints]
    if not requests:
        raise ValueError(f"{model} had no requests; give a --rate, a --trace or a longer --since")
    return requests


def to_tasks(requests: Iterable[PastRequest], default_steps: int, steps: int | None = None) -> list[SimulatedTask]:
    """Builds simulated tasks. `steps` overrides the requests' own steps; `default_steps` is for those without any."""
    from deployments.contract.request import MEGAPIXEL
    from serve_app.planning.simulation import SimulatedTask

    tasks = list[SimulatedTask]()
    for at, shape, tenant in requests:
        pixels = shape.size.width * shape.size.height if shape.size else MEGAPIXEL
        megapixels = pixels / MEGAPIXEL * (shape.seconds or 1)
        tasks.append(SimulatedTask(at, megapixels, steps or shape.steps or default_steps, tenant))
    return tasks


def _profile(file: Path | None, model: str, settings: Settings, catalog: Catalog, config: Path | None) -> ModelProfile:
    from serve_app.planning.profile import ModelProfile, NoMeasurements
    from serve_app.tasks.reads import TaskReads

    if file is not None:
        return ModelProfile.model_validate_json(file.read_text())

    async def read() -> dict[str, float]:
        async with open_redis(config) as (redis, prefix):
            return await TaskReads(redis, prefix).work(model)

    limits = catalog.models[model].config(settings.model(model))
    try:
        work = asyncio.run(read())
        return ModelProfile.from_counts(work, max_batch=limits.max_batch, max_running=limits.max_running)
    except (NoMeasurements, FileNotFoundError) as problem:
        raise ServiceError(f"{problem}; measure a profile: gen-serve profile {model}") from None


def _scaling(bounds: str | None, target_wait: float | None, own: AutoscalingSettings) -> AutoscalingSettings:
    update: dict[str, object] = {} if target_wait is None else {"target_wait_s": target_wait}
    if bounds is not None:
        minimum, _, maximum = bounds.partition("-")
        if not (minimum.isdigit() and maximum.isdigit()):
            raise ValueError(f"--autoscale must be MIN-MAX, like 1-20, not {bounds!r}")
        update |= {"min_replicas": int(minimum), "max_replicas": int(maximum)}
    return AutoscalingSettings.model_validate(own.model_dump() | update)


def _cells(row: PlanRow) -> Sequence[Cell]:
    meets = "yes" if row.meets else "no"
    busy = f"{row.utilisation:.0%}"
    return row.replicas, row.p50, row.p95, row.p99, row.goodput, busy, row.gpu_hours, row.cost, meets
