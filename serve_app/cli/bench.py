"""`gen-serve bench`: load on any server, and what came of it.

What it needs is imported when a command runs: other commands are not to wait for it.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli import bench_options as options
from serve_app.cli.options import BaseUrl, Config, Json, Key

if TYPE_CHECKING:
    from serve_app.load.arrivals import Arrivals

app = typer.Typer(
    help="Put any server under load: fixed arrivals that never wait for answers, and an honest report.",
    no_args_is_help=True,
)


@app.command("run")
def run(
    rate: Annotated[float, typer.Option(help="Requests per second, the mean.")] = 1.0,
    mix: options.MixFile = None,
    endpoint: options.Endpoint = None,
    size: options.Size = None,
    steps: options.Steps = None,
    arrivals: options.Arrivals = "poisson",
    peak: options.Peak = None,
    period: options.Period = 60.0,
    duration: options.Duration = 60.0,
    warm_up: options.WarmUp = 0.0,
    slo: options.Slo = None,
    seed: options.Seed = 0,
    adapter: options.Adapter = "gen",
    limit: options.Limit = 300.0,
    poll_every: options.PollEvery = 0.1,
    wait: options.Wait = 0.0,
    processes: options.Processes = 1,
    output: options.Output = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Send a mix at one rate, and report. It makes real tasks, which cost what they cost.

    \b
    gen-serve bench run --endpoint gen-3-image-klein --size 256x256 --steps 4 --rate 2 --duration 30 --slo 5
    gen-serve bench run --mix configs/load.yaml --rate 4 --arrivals bursts --slo 3x --warm-up 20

    Ctrl-C ends it early and reports what there is. Exit code 1 when a task that was accepted never ended.
    """
    from serve_app.cli import bench_runs
    from serve_app.load.plan import Load, weights_of

    folder = bench_runs.folder_of(output)
    chosen, source = bench_runs.mix_of(mix, endpoint, size, steps)
    objective = bench_runs.objective_of(slo)
    load = Load(chosen, source, adapter, _pattern(arrivals), duration, warm_up, peak, period)
    plan = load.at(rate, seed)
    wire = bench_runs.Wire(base_url, key, adapter, limit, poll_every, wait)
    runs = bench_runs.Runs(wire.target(chosen, list(weights_of(chosen))), processes, objective)
    runs.check(chosen.one_of_each())
    runs.measure_solo(chosen.one_of_each())
    raise typer.Exit(bench_runs.finish_run(runs.measure(plan), folder, as_json=as_json))


@app.command("sweep")
def sweep(
    rates: Annotated[
        str | None,
        typer.Option(help="Requests per second, with commas between; else the knee is searched.", show_default=False),
    ] = None,
    attain: Annotated[
        float | None,
        typer.Option(help="Share of requests that is to be within --slo at the knee; else 0.99.", show_default=False),
    ] = None,
    start_rate: Annotated[
        float | None, typer.Option(min=0.001, help="Where the search begins; else at 1.", show_default=False)
    ] = None,
    mix: options.MixFile = None,
    endpoint: options.Endpoint = None,
    size: options.Size = None,
    steps: options.Steps = None,
    arrivals: options.Arrivals = "poisson",
    peak: options.Peak = None,
    period: options.Period = 60.0,
    duration: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds of arrivals that count, of each run; else 60, or 24 times the objective if that is longer.",
            show_default=False,
        ),
    ] = None,
    warm_up: options.WarmUp = 0.0,
    slo: options.Slo = None,
    seed: options.Seed = 0,
    adapter: options.Adapter = "gen",
    limit: options.Limit = 300.0,
    poll_every: options.PollEvery = 0.1,
    wait: options.Wait = 0.0,
    processes: options.Processes = 1,
    output: options.Output = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Send a mix at several rates; or search the knee, the highest rate that holds the objective.

    \b
    gen-serve bench sweep --mix configs/load.yaml --rates 1,2,4,8 --slo 5
    gen-serve bench sweep --mix configs/load.yaml --slo 5 --attain 0.99

    The knee is searched by doubling and halving, until the rate that holds and the one that does not are 5 % apart;
    both are then run again. A run ends when all its tasks have: the next one meets an idle server.
    """
    from serve_app.cli import bench_runs
    from serve_app.load.plan import Load, weights_of
    from serve_app.load.sweep import LENGTHS_OF_OBJECTIVE, at_rates, to_the_knee

    folder = bench_runs.folder_of(output)
    objective = bench_runs.objective_of(slo)
    if rates is not None and (attain is not None or start_rate is not None):
        raise ValueError("--attain and --start-rate are for the search of the knee, --rates for rates that are known")
    if rates is None and objective is None:
        raise ValueError("--slo is needed to search the knee: seconds, like 5, or a multiple, like 3x; or name --rates")
    share = 0.99 if attain is None else attain
    if not 0 < share < 1:
        raise ValueError(f"--attain should be between 0 and 1, like 0.99, not {share:g}")
    listed = None if rates is None else _rates(rates)
    chosen, source = bench_runs.mix_of(mix, endpoint, size, steps)
    wire = bench_runs.Wire(base_url, key, adapter, limit, poll_every, wait)
    runs = bench_runs.Runs(wire.target(chosen, list(weights_of(chosen))), processes, objective)
    load = Load(chosen, source, adapter, _pattern(arrivals), duration or 60.0, warm_up, peak, period)
    for rate in listed or [start_rate or 1.0]:
        load.at(rate, seed)
    runs.check(chosen.one_of_each())
    runs.measure_solo(chosen.one_of_each())
    least = LENGTHS_OF_OBJECTIVE * objective.longest(runs.solo) if objective else 0.0
    if duration is None:
        load = load.lasting(max(load.duration, least))
    if listed is not None:
        swept = at_rates(lambda rate, seed: runs.measure(load.at(rate, seed)), listed, seed)
    else:
        swept = to_the_knee(lambda rate, seed: runs.measure(load.at(rate, seed)), share, start_rate or 1.0, seed)
    if load.duration < least:
        swept.notes.append(
            f"runs of {load.duration:g} s are too short to tell rates that are 5 % apart: that takes {least:.0f} s"
        )
    raise typer.Exit(bench_runs.finish_sweep(swept, folder, as_json=as_json))


@app.command("replay")
def replay(
    trace: Annotated[Path, typer.Argument(help="What `gen-serve bench record` wrote.", show_default=False)],
    speed: Annotated[float, typer.Option(help="How many times as fast.")] = 1.0,
    mix: Annotated[
        Path | None,
        typer.Option("--mix", help="YAML file with tenants, prompts and http; its endpoints don't count."),
    ] = None,
    finetune: options.Finetune = None,
    warm_up: options.WarmUp = 0.0,
    slo: options.Slo = None,
    seed: options.Seed = 0,
    adapter: options.Adapter = "gen",
    limit: options.Limit = 300.0,
    poll_every: options.PollEvery = 0.1,
    wait: options.Wait = 0.0,
    processes: options.Processes = 1,
    output: options.Output = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Send a recorded load again: the same moments, endpoints and shapes, with prompts and pictures that are made up.

    Tenants of the trace are those of --mix, in turn; without one they all share one key.
    """
    from serve_app.cli import bench_runs
    from serve_app.load import trace as traces
    from serve_app.load.mix import Mix
    from serve_app.load.mix import load as load_mix
    from serve_app.load.plan import replayed

    folder = bench_runs.folder_of(output)
    objective = bench_runs.objective_of(slo)
    chosen = load_mix(mix) if mix is not None else Mix()
    arrivals = traces.read(trace)
    plan = replayed(arrivals, chosen, trace.name, adapter, speed=speed, warm_up=warm_up, seed=seed)
    wire = bench_runs.Wire(base_url, key, adapter, limit, poll_every, wait, finetune)
    runs = bench_runs.Runs(
        wire.target(chosen, list(plan.weights)), processes, objective, tuple(traces.notes(arrivals, chosen, finetune))
    )
    runs.check(plan.requests)
    runs.measure_solo(plan.requests)
    raise typer.Exit(bench_runs.finish_run(runs.measure(plan), folder, as_json=as_json))


@app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(help="Folder of a run, or its summary.json or rows.jsonl.", metavar="A")],
    second: Annotated[Path, typer.Argument(help="The other one's.", metavar="B")],
    as_json: Json = False,
) -> None:
    """Compare two runs: B's figures as multiples of A's, with 95 % intervals by bootstrap.

    An interval that holds 1 is no difference. Runs that did not do the same work say nothing of the servers.
    """
    from serve_app.cli.table import show, show_json
    from serve_app.load.compare import compared
    from serve_app.load.measured import Measured

    found = compared(Measured.read(first), Measured.read(second))
    if as_json:
        show_json(found.as_json())
        return
    for difference in found.differences:
        print(f"these runs don't compare: {difference}")
    if found.differences:
        print()
    show(
        ("figure", "A", "B", "B to A", "95 %", "so"),
        (
            (
                each.name,
                each.first,
                each.second,
                f"{each.ratio.middle:.3f}" if each.ratio else f"{each.second / each.first:.3f}" if each.first else "",
                f"{each.ratio.low:.3f} to {each.ratio.high:.3f}" if each.ratio else "",
                each.verdict,
            )
            for each in found.ratios
        ),
    )


@app.command("record")
def record(
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the trace.", show_default=False)],
    since: Annotated[
        datetime | None, typer.Option(help="Only what was submitted since, local time.", show_default=False)
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Only what was submitted before, local time.", show_default=False)
    ] = None,
    config: Config = None,
) -> None:
    """Write what a service was asked for, from its task store: moments, endpoints, shapes, and tenants as numbers.

    Never prompts, ids, links or pictures. What was refused is not in it, nor tasks that are no longer kept.
    """
    import asyncio

    from serve_app.cli.recording import recorded
    from serve_app.load import trace as traces

    if output.exists():
        raise ValueError(f"{output} is there already; name another file with --output")
    bounds = (since.timestamp() if since else None, until.timestamp() if until else None)
    found, unreadable = asyncio.run(recorded(config, *bounds))
    if not found:
        raise ValueError("the task store holds no tasks of that time")
    traces.write(output, found)
    told = f"{len(found)} requests in {found[-1].offset:.1f} s, of {len({each.tenant for each in found})} tenants"
    print(f"{told}: {output}")
    if unreadable:
        print(f"{unreadable} further tasks can't be read: the key they were encrypted with is gone, or they are newer")


def _pattern(text: str) -> Arrivals:
    """Raises ValueError for what is no pattern of arrivals."""
    from serve_app.load.arrivals import PATTERNS

    for pattern in PATTERNS:
        if pattern == text:
            return pattern
    raise ValueError(f"--arrivals should be one of {', '.join(PATTERNS)}, not {text!r}")


def _rates(text: str) -> list[float]:
    try:
        found = [float(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < rate < float("inf") for rate in found):
        raise ValueError(f"--rates should be numbers above 0 with commas between, like 1,2,4, not {text!r}")
    return found
