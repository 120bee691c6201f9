"""Command line: `gen-serve bench`, or `gen-serve-bench` without a service.

Commands import their modules on use, so that `gen-serve` starts quickly.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

if TYPE_CHECKING:
    from gen_serve_bench.adapters import Target
    from gen_serve_bench.goals import Objective, Threshold
    from gen_serve_bench.results import RunResult
    from gen_serve_bench.workload import Load, LoadRequest, Mix, Pattern, Plan

app = typer.Typer(
    help="Load-test any server: open and closed loops, sweeps and replays, with a report.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
INTERRUPTED: Final = 130
_CONNECT_S: Final = 10


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


MixFile = Annotated[Path | None, _option("--mix", help="YAML file of the requests to send, like configs/load.yaml.")]
Endpoint = Annotated[str | None, _option(help="Endpoint, or model, of all requests; replaces --mix.")]
Size = Annotated[str | None, _option(help="WIDTHxHEIGHT, with --endpoint; by default the server chooses.")]
Steps = Annotated[int | None, _option(min=1, help="Steps, with --endpoint; by default the server chooses.")]
Adapter = Annotated[str, typer.Option(help="API of the server: gen (this service's) or openai.")]
Arrivals = Annotated[str, typer.Option(help="Arrival pattern: poisson, constant, bursts or diurnal.")]
Peak = Annotated[
    float | None, _option(help="Peak of bursts or diurnal arrivals, relative to the mean rate; by default 4 or 1.8.")
]
Period = Annotated[float, typer.Option(help="Seconds between peaks of bursts or diurnal arrivals.")]
Duration = Annotated[float, typer.Option(min=0.1, help="Seconds of arrivals that count.")]
WarmUp = Annotated[float, typer.Option(min=0, help="Seconds of arrivals before those that count.")]
Seed = Annotated[int, typer.Option(help="Seed of arrivals, requests and prompts.")]
Slo = Annotated[
    str | None,
    _option(help="Latency objective: seconds, like 5, or a multiple of a request's latency alone, like 3x."),
]
FailIf = Annotated[
    list[str] | None,
    _option("--fail-if", help="Exit with 1 on this condition: 'p95>10', 'attainment<0.99'; repeatable."),
]
Limit = Annotated[float, typer.Option(min=0.1, help="Seconds after which an accepted task counts as lost.")]
PollEvery = Annotated[float, typer.Option(min=0.005, help="Seconds between two polls of a task.")]
Wait = Annotated[float, typer.Option(min=0, max=60, help="Seconds that a poll may wait at the server (?wait=).")]
Processes = Annotated[int, typer.Option(min=1, help="Generator processes that share the requests.")]
Output = Annotated[
    Path | None, _option("--output", "-o", help="Folder for the report; by default load-DATE-TIME in this folder.")
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
BaseUrl = Annotated[
    str | None,
    _option("--base-url", help="Address; by default that of the service on this machine.", envvar="GEN_BASE_URL"),
]
Key = Annotated[
    str,
    _option(
        "--key", help="API key; by default that of the service on this machine.", envvar=["GEN_KEY", "GEN_API_KEY"]
    ),
]


def _default_location(base_url: str | None, key: str, required: bool) -> tuple[str, str]:
    if required and not key:
        raise ValueError("no API key: pass --key or set GEN_KEY")
    return base_url or "http://127.0.0.1:8000", key


locate: Callable[[str | None, str, bool], tuple[str, str]] = _default_location
"""Returns the address and key to use. Raises ValueError if a required key is missing.

`gen-serve` replaces it by a function that finds the services of this machine.
"""


def _with_options(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the parameters of each maker to a command's options, and passes the command the maker's result."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = {name: each for name, each in _options(command).items() if name not in makers}
        maker_options = {name: _options(maker) for name, maker in makers.items()}

        def wrapper(**values: Any) -> None:
            arguments = {
                name: makers[name](**{each: values[each] for each in options})
                for name, options in maker_options.items()
            }
            command(**{name: values[name] for name in own}, **arguments)

        parameters = [*own.values(), *(each for options in maker_options.values() for each in options.values())]
        wrapper.__signature__ = Signature([each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters])  # pyright: ignore[reportFunctionMemberAccess]
        wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
        wrapper.__doc__ = command.__doc__
        return wrapper

    return decorate


def _options(command: Callable[..., Any]) -> Mapping[str, Parameter]:
    """Returns the parameters with their annotations evaluated for typer; Load and Bench are not imported yet."""
    return signature(command, eval_str=True, locals={"Load": Any, "Bench": Any}).parameters


def _load(
    mix: MixFile = None,
    endpoint: Endpoint = None,
    size: Size = None,
    steps: Steps = None,
    arrivals: Arrivals = "poisson",
    peak: Peak = None,
    period: Period = 60.0,
    duration: Duration = 60.0,
    warm_up: WarmUp = 0.0,
) -> Load:
    """Makes the load. Raises ValueError unless either a mix or an endpoint is given."""
    from gen_serve_bench import workload

    if (mix is None) == (endpoint is None):
        raise ValueError("name the requests to send: --mix FILE (configs/load.yaml is one), or --endpoint NAME")
    if mix is not None and (size is not None or steps is not None):
        raise ValueError("--size and --steps need --endpoint; a mix has its own")
    if mix is not None:
        requests, source = workload.load_mix(mix), mix.name
    else:
        source = (endpoint or "").removeprefix("/v1/")
        sizes = [workload.Size.parse(size)] if size is not None else []
        uniform = workload.Endpoint(endpoint=source, sizes=sizes, steps=[steps] if steps is not None else [])
        requests = workload.Mix(endpoints=[uniform])
    requests.request_per_kind()
    return workload.Load(requests, source, duration, warm_up, cast("Pattern", arrivals), peak, period)


def _bench(
    slo: Slo = None,
    fail_if: FailIf = None,
    adapter: Adapter = "gen",
    limit: Limit = 300.0,
    poll_every: PollEvery = 0.1,
    wait: Wait = 0.0,
    processes: Processes = 1,
    output: Output = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> Bench:
    """Makes the bench. Raises ValueError for an invalid option, or a folder that is not empty."""
    from gen_serve_bench.adapters import ADAPTERS, AdapterName, Target
    from gen_serve_bench.goals import Objective, Threshold

    folder = output or Path(f"load-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty; name another folder with --output")
    if adapter not in ADAPTERS:
        raise ValueError(f"--adapter should be one of {', '.join(ADAPTERS)}, not {adapter!r}")
    if wait and adapter != "gen":
        raise ValueError("--wait needs --adapter gen: other servers do not take it")
    objective = None if slo is None else Objective.parse(slo)
    target = Target(base_url or "", cast("AdapterName", adapter), {}, limit, poll_every, wait)
    return Bench(target, key, objective, [Threshold.parse(each) for each in fail_if or []], processes, folder, as_json)


@app.command("run")
@_with_options(load=_load, bench=_bench)
def run(
    load: Load,
    bench: Bench,
    rate: Annotated[float, typer.Option(help="Mean requests per second.")] = 1.0,
    concurrency: Annotated[int | None, _option(min=1, help="Requests in flight; replaces --rate.")] = None,
    num_requests: Annotated[
        int | None, _option(min=1, help="Number of requests, with --concurrency; by default those of --duration.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Send a mix at one rate or concurrency, and report. It makes real tasks at real costs.

    \b
    gen-serve bench run --endpoint gen-3-image-klein --size 256x256 --steps 4 --rate 2 --duration 30 --slo 5
    gen-serve bench run --mix configs/load.yaml --rate 4 --arrivals bursts --slo 3x --warm-up 20
    gen-serve bench run --mix configs/load.yaml --concurrency 8 --num-requests 200 --fail-if 'p95>10'

    Ctrl-C ends it early and reports the results so far. Exits with 1 if an accepted task never ended.
    """
    if num_requests is not None and concurrency is None:
        raise ValueError("--num-requests needs --concurrency; with a rate use --duration")
    plan = load.closed_loop(concurrency, num_requests, seed) if concurrency else load.at(rate, seed)
    bench.connect(load.mix, list(plan.weights), load.mix.request_per_kind())
    bench.finish_run(plan)


@app.command("sweep")
@_with_options(load=_load, bench=_bench)
def sweep(
    load: Load,
    bench: Bench,
    rates: Annotated[str, _option(help="Requests per second, separated by commas, like 1,2,4.")],
    seed: Seed = 0,
) -> None:
    """Send a mix at several rates, and report the curves.

    \b
    gen-serve bench sweep --mix configs/load.yaml --rates 1,2,4,8 --slo 5

    Each run ends when all its tasks have ended, so that the next one starts with an idle server.
    """
    try:
        numbers = [float(each) for each in rates.split(",")]
    except ValueError:
        raise ValueError(f"--rates should be numbers separated by commas, like 1,2,4, not {rates!r}") from None
    plans = [load.at(rate, seed) for rate in numbers]
    bench.connect(load.mix, list(load.mix.weights), load.mix.request_per_kind())
    bench.finish_sweep(plans)


@app.command("replay")
@_with_options(bench=_bench)
def replay(
    trace: Annotated[Path, typer.Argument(help="File of `gen-serve bench record`.", show_default=False)],
    bench: Bench,
    speed: Annotated[float, typer.Option(help="Factor by which to replay faster.")] = 1.0,
    mix: Annotated[
        Path | None, _option("--mix", help="YAML file with tenants and prompts; its endpoints are ignored.")
    ] = None,
    finetune: Annotated[
        str | None, _option(help="Id of a tuned model for recorded requests with one; by default they go without.")
    ] = None,
    warm_up: WarmUp = 0.0,
    seed: Seed = 0,
) -> None:
    """Replay a recorded load: the same times, endpoints and shapes, with made-up prompts and images.

    Tenants of the trace map to those of --mix in turn; without a mix they all share one key.
    """
    from gen_serve_bench.workload import Mix, load_mix, read_trace, replay, replay_notes

    replay_mix = load_mix(mix) if mix is not None else Mix()
    arrivals = read_trace(trace)
    plan = replay(arrivals, replay_mix, trace.name, speed=speed, warm_up=warm_up, seed=seed)
    bench.notes = tuple(replay_notes(arrivals, replay_mix, finetune))
    bench.target = replace(bench.target, finetune=finetune)
    bench.connect(replay_mix, list(plan.weights), plan.requests)
    bench.finish_run(plan)


@dataclass(slots=True)
class Bench:
    """Target, options and output of a command's runs."""

    target: Target
    key: str
    objective: Objective | None
    thresholds: list[Threshold]
    processes: int
    folder: Path
    as_json: bool
    notes: tuple[str, ...] = ()
    solo: dict[str, float] = field(default_factory=dict)

    def connect(self, mix: Mix, tenants: Sequence[str], kinds: Sequence[LoadRequest]) -> None:
        """Finds the server and the keys, checks the requests, and measures solo latencies if the objective needs them.

        Raises ValueError for a request that can't be sent, Exit if the server can't be reached.
        """
        from httpx2 import URL

        from gen_serve_bench.adapters import prepare_adapter

        tenant_keys = {tenant.name: secret for tenant in mix.tenants if (secret := tenant.key())}
        keys = {name: tenant_keys[name] for name in tenants if name in tenant_keys}
        # Other servers may need no key.
        required = len(keys) < len(tenants) and self.target.adapter == "gen"
        address, default_key = locate(self.target.base_url or None, self.key, required)
        keys |= {name: default_key for name in tenants if name not in keys and default_key}
        self.target = replace(self.target, base_url=address, keys=keys)
        prepare_adapter(self.target, {request.kind: request for request in kinds})
        url = URL(address)
        try:
            port = url.port or (443 if url.scheme == "https" else 80)
            socket.create_connection((url.host, port), timeout=_CONNECT_S).close()
        except OSError as problem:
            raise _error_exit(f"{address} can't be reached: {problem.strerror or problem}") from None
        if self.objective and self.objective.times_solo:
            self._measure_solo(kinds)

    def _measure_solo(self, kinds: Sequence[LoadRequest]) -> None:
        from gen_serve_bench.generator import WorkerLoad, generate
        from gen_serve_bench.goals import NoSolo, solo_latencies, solo_requests
        from gen_serve_bench.outcomes import Outcome

        requests = solo_requests(kinds)

        def send(request: LoadRequest) -> Outcome:
            [outcome], _ = asyncio.run(generate(self.target, WorkerLoad([request])))
            step("")
            return outcome

        with _progress("solo latencies", len(requests)) as step:
            try:
                self.solo = solo_latencies(requests, send)
            except NoSolo as problem:
                raise _error_exit(str(problem)) from None

    def _measure(self, plan: Plan) -> RunResult:
        from gen_serve_bench import generator
        from gen_serve_bench.results import RunResult

        total = None if plan.concurrency and plan.duration else len(plan.requests)
        try:
            with _progress(plan.title, total) as step:
                outcomes = generator.run(self.target, plan, self.processes, lambda outcome: step(outcome.end))
        except generator.GeneratorFailed as problem:
            raise _error_exit(str(problem)) from None
        return RunResult.from_run(plan, outcomes, self.objective, self.solo, self.notes)

    def finish_run(self, plan: Plan) -> None:
        """Runs the plan, writes and shows the result, and ends the command."""
        from gen_serve_bench import report
        from gen_serve_bench.report import run_page

        result = self._measure(plan)
        result.write(self.folder)
        self._show(result.as_json(), run_page(result), report.run_tables(result), report.warnings(result))
        self._exit([result])

    def finish_sweep(self, plans: Sequence[Plan]) -> None:
        """Runs the plans until one is interrupted, writes and shows the results, and ends the command."""
        from gen_serve_bench.report import sweep_page, sweep_tables
        from gen_serve_bench.results import Sweep

        result = Sweep()
        for plan in plans:
            result.runs.append(self._measure(plan))
            if result.runs[-1].interrupted is not None:
                result.notes.append("interrupted: the missing rates were not run")
                break
        result.write(self.folder)
        self._show(result.as_json(), sweep_page(result), sweep_tables(result), result.notes)
        self._exit(result.runs)

    def _show(self, summary: Any, page: str, tables: Any, lines: Sequence[str]) -> None:
        from gen_serve_bench import report

        path = self.folder / "report.html"
        path.write_text(page)
        if self.as_json:
            print(json.dumps(summary, indent=2))
        else:
            report.show(tables, [*lines, f"report: {path}"])

    def _exit(self, runs: Sequence[RunResult]) -> None:
        """Raises Exit: 1 for lost tasks or a violated threshold, 130 for an interrupted run, else 0."""
        lost = sum(run.figures["lost"] for run in runs)
        errors = [f"{lost} accepted tasks never ended"] if lost else []
        for run in runs:
            violations = (each.violation(run.metrics) for each in self.thresholds)
            errors += [f"{run.title}: {violation}" for violation in violations if violation]
        for error in errors:
            print(f"error: {error}", file=sys.stderr)
        interrupted = any(run.interrupted is not None for run in runs)
        raise typer.Exit(1 if errors else INTERRUPTED if interrupted else 0)


@contextmanager
def _progress(description: str, total: int | None) -> Iterator[Callable[[str], None]]:
    """Shows progress on stderr if that is a terminal. Yields a function that counts a request by its end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console, ends = Console(stderr=True), Counter[str]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(description, total=total)

        def step(end: str) -> None:
            ends[end] += 1
            counts = ", ".join(f"{count} {each}" for each, count in ends.items() if each not in ("", "served"))
            bar.update(line, advance=1, description=f"{description}{f' ({counts})' if counts else ''}")

        yield step


def _error_exit(problem: str) -> typer.Exit:
    print(f"error: {problem}", file=sys.stderr)
    return typer.Exit(1)


def main() -> None:
    """Runs the command line. Exit codes: 0 done, 1 failed or over a threshold, 2 wrong usage, 130 Ctrl-C."""
    try:
        app(prog_name=Path(sys.argv[0]).name)
    except (OSError, ValueError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, ValueError | FileNotFoundError) else 1)
