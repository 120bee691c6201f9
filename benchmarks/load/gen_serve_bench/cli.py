"""The commands: `gen-serve bench`, or `gen-serve-bench` where there is no service.

What they need is imported when a command runs: others are not to wait for it.
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
    from gen_serve_bench.workload import Load, Mix, Pattern, Plan, Request

app = typer.Typer(
    help="Put any server under load: arrivals that never wait for answers, and an honest report.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
INTERRUPTED: Final = 130
_CONNECT_S: Final = 10


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


MixFile = Annotated[Path | None, _option("--mix", help="YAML file of what is sent, like configs/load.yaml.")]
Endpoint = Annotated[str | None, _option(help="In place of a mix: one endpoint, or model, for all requests.")]
Size = Annotated[str | None, _option(help="With --endpoint: WIDTHxHEIGHT; else the server chooses.")]
Steps = Annotated[int | None, _option(min=1, help="With --endpoint: steps; else the server chooses.")]
Adapter = Annotated[str, typer.Option(help="How the server is spoken to: gen (this interface), openai.")]
Arrivals = Annotated[str, typer.Option(help="How requests come: poisson, constant, bursts, diurnal.")]
Peak = Annotated[float | None, _option(help="Of bursts and diurnal: how many times the mean rate; else 4 and 1.8.")]
Period = Annotated[float, typer.Option(help="Of bursts and diurnal arrivals: seconds from one peak to the next.")]
Duration = Annotated[float, typer.Option(min=0.1, help="Seconds of arrivals that count.")]
WarmUp = Annotated[float, typer.Option(min=0, help="Seconds of arrivals before them, which are left out.")]
Seed = Annotated[int, typer.Option(help="Of arrivals, of what is drawn from the mix, and of prompts.")]
Slo = Annotated[
    str | None,
    _option(help="Objective: seconds until the result, like 5, or a multiple of what a request takes alone, like 3x."),
]
FailIf = Annotated[
    list[str] | None, _option("--fail-if", help="Exit with 1 if so: 'p95>10', 'attainment<0.99'. Several are allowed.")
]
Limit = Annotated[float, typer.Option(min=0.1, help="Seconds after which an accepted task counts as lost.")]
PollEvery = Annotated[float, typer.Option(min=0.005, help="Seconds between two polls of a task.")]
Wait = Annotated[
    float, typer.Option(min=0, max=60, help="Let polls wait at the server so long, where it knows ?wait=.")
]
Processes = Annotated[int, typer.Option(min=1, help="Generator processes that share the requests.")]
Output = Annotated[Path | None, _option("--output", "-o", help="Folder for the report; else load-DATE-TIME here.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
BaseUrl = Annotated[
    str | None, _option("--base-url", help="Address; else that of the service on this machine.", envvar="GEN_BASE_URL")
]
Key = Annotated[
    str,
    _option("--key", help="API key; else that of the service on this machine.", envvar=["GEN_KEY", "GEN_API_KEY"]),
]


def _default_location(base_url: str | None, key: str, required: bool) -> tuple[str, str]:
    if required and not key:
        raise ValueError("no API key: pass --key or set GEN_KEY")
    return base_url or "http://127.0.0.1:8000", key


locate: Callable[[str | None, str, bool], tuple[str, str]] = _default_location
"""The address and the key that options mean. Raises ValueError where there is no key and one is needed. `gen-serve`
sets its own, which knows the services of this machine."""


def _takes(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of each maker, which are its parameters, and what the maker makes of them."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = {name: each for name, each in _options(command).items() if name not in makers}
        maker_options = {name: _options(maker) for name, maker in makers.items()}

        def wrapper(**values: Any) -> None:
            arguments = {
                name: makers[name](**{each: values[each] for each in options})
                for name, options in maker_options.items()
            }
            command(**{name: values[name] for name in own}, **arguments)

        every = [*own.values(), *(each for options in maker_options.values() for each in options.values())]
        wrapper.__signature__ = Signature([each.replace(kind=Parameter.KEYWORD_ONLY) for each in every])  # pyright: ignore[reportFunctionMemberAccess]
        wrapper.__annotations__ = {each.name: each.annotation for each in every}
        wrapper.__doc__ = command.__doc__
        return wrapper

    return decorate


def _options(command: Callable[..., Any]) -> Mapping[str, Parameter]:
    """With annotations as typer reads them; what makers make is imported later, and is none of an option's."""
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
    """Raises ValueError unless either a file or an endpoint is named."""
    from gen_serve_bench import workload

    if (mix is None) == (endpoint is None):
        raise ValueError("name what is sent: --mix FILE (configs/load.yaml is one), or --endpoint NAME")
    if mix is not None and (size is not None or steps is not None):
        raise ValueError("--size and --steps are for --endpoint; a mix has its own")
    if mix is not None:
        selection, source = workload.load_mix(mix), mix.name
    else:
        source = (endpoint or "").removeprefix("/v1/")
        sizes = [workload.Size.parse(size)] if size is not None else []
        one = workload.Endpoint(endpoint=source, sizes=sizes, steps=[steps] if steps is not None else [])
        selection = workload.Mix(endpoints=[one])
    selection.request_per_kind()
    return workload.Load(selection, source, duration, warm_up, cast("Pattern", arrivals), peak, period)


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
    """Raises ValueError for what is none, and for a folder that has something in it: no report replaces another."""
    from gen_serve_bench.adapters import ADAPTERS, AdapterName, Target
    from gen_serve_bench.goals import Objective, Threshold

    folder = output or Path(f"load-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there and not empty; name another folder with --output")
    if adapter not in ADAPTERS:
        raise ValueError(f"--adapter should be one of {', '.join(ADAPTERS)}, not {adapter!r}")
    if wait and adapter != "gen":
        raise ValueError("--wait is for --adapter gen: no other server is known to take it")
    objective = None if slo is None else Objective.parse(slo)
    target = Target(base_url or "", cast("AdapterName", adapter), {}, limit, poll_every, wait)
    return Bench(target, key, objective, [Threshold.parse(each) for each in fail_if or []], processes, folder, as_json)


@app.command("run")
@_takes(load=_load, bench=_bench)
def run(
    load: Load,
    bench: Bench,
    rate: Annotated[float, typer.Option(help="Requests per second, the mean.")] = 1.0,
    concurrency: Annotated[
        int | None, _option(min=1, help="In place of a rate: requests that are on their way at any time.")
    ] = None,
    num_requests: Annotated[int | None, _option(min=1, help="With --concurrency: how many; else for a time.")] = None,
    seed: Seed = 0,
) -> None:
    """Send a mix at one rate, or so many at a time, and report. It makes real tasks, which cost what they cost.

    \b
    gen-serve bench run --endpoint gen-3-image-klein --size 256x256 --steps 4 --rate 2 --duration 30 --slo 5
    gen-serve bench run --mix configs/load.yaml --rate 4 --arrivals bursts --slo 3x --warm-up 20
    gen-serve bench run --mix configs/load.yaml --concurrency 8 --num-requests 200 --fail-if 'p95>10'

    Ctrl-C ends it early and reports what there is. Exit code 1 when a task that was accepted never ended.
    """
    if num_requests is not None and concurrency is None:
        raise ValueError("--num-requests is for --concurrency; with a rate there is --duration")
    plan = load.closed_loop(concurrency, num_requests, seed) if concurrency else load.at(rate, seed)
    bench.reach(load.mix, list(plan.weights), load.mix.request_per_kind())
    bench.finish_run(plan)


@app.command("sweep")
@_takes(load=_load, bench=_bench)
def sweep(
    load: Load,
    bench: Bench,
    rates: Annotated[str, _option(help="Requests per second, with commas between, like 1,2,4.")],
    seed: Seed = 0,
) -> None:
    """Send a mix at several rates, and report the curve.

    \b
    gen-serve bench sweep --mix configs/load.yaml --rates 1,2,4,8 --slo 5

    A run ends when all its tasks have: the next one meets an idle server.
    """
    try:
        numbers = [float(each) for each in rates.split(",")]
    except ValueError:
        raise ValueError(f"--rates should be numbers with commas between, like 1,2,4, not {rates!r}") from None
    plans = [load.at(rate, seed) for rate in numbers]
    bench.reach(load.mix, list(load.mix.weights), load.mix.request_per_kind())
    bench.finish_sweep(plans)


@app.command("replay")
@_takes(bench=_bench)
def replay(
    trace: Annotated[Path, typer.Argument(help="What `gen-serve bench record` wrote.", show_default=False)],
    bench: Bench,
    speed: Annotated[float, typer.Option(help="How many times as fast.")] = 1.0,
    mix: Annotated[
        Path | None, _option("--mix", help="YAML file with tenants and prompts; its endpoints don't count.")
    ] = None,
    finetune: Annotated[
        str | None, _option(help="Id of a tuned model for the requests of a trace that had one; else without.")
    ] = None,
    warm_up: WarmUp = 0.0,
    seed: Seed = 0,
) -> None:
    """Send a recorded load again: the same moments, endpoints and shapes, with prompts and images that are made up.

    Tenants of the trace are those of --mix, in turn; without one they all share one key.
    """
    from gen_serve_bench.workload import Mix, load_mix, read_trace, replay, replay_notes

    replay_mix = load_mix(mix) if mix is not None else Mix()
    arrivals = read_trace(trace)
    plan = replay(arrivals, replay_mix, trace.name, speed=speed, warm_up=warm_up, seed=seed)
    bench.notes = tuple(replay_notes(arrivals, replay_mix, finetune))
    bench.target = replace(bench.target, finetune=finetune)
    bench.reach(replay_mix, list(plan.weights), plan.requests)
    bench.finish_run(plan)


@dataclass(slots=True)
class Bench:
    """What the runs of one command have in common."""

    target: Target
    key: str
    objective: Objective | None
    thresholds: list[Threshold]
    processes: int
    folder: Path
    as_json: bool
    notes: tuple[str, ...] = ()
    solo: dict[str, float] = field(default_factory=dict)

    def reach(self, mix: Mix, tenants: Sequence[str], kinds: Sequence[Request]) -> None:
        """Sees that requests can be sent, and measures what they take alone where the objective is a multiple of that.
        Raises ValueError for what can't be sent this way, Exit where nobody listens."""
        from httpx2 import URL

        from gen_serve_bench.adapters import prepare_adapter

        own = {tenant.name: secret for tenant in mix.tenants if (secret := tenant.key())}
        keys = {name: own[name] for name in tenants if name in own}
        # Servers of other forms may do without a key, as one whose tenants all have theirs.
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

    def _measure_solo(self, kinds: Sequence[Request]) -> None:
        from gen_serve_bench.generator import WorkerLoad, generate
        from gen_serve_bench.goals import NoSolo, solo_latencies, solo_requests
        from gen_serve_bench.results import Outcome

        requests = solo_requests(kinds)

        def send(request: Request) -> Outcome:
            [outcome], _ = asyncio.run(generate(self.target, WorkerLoad([request])))
            step("")
            return outcome

        with _progress("alone, one by one", len(requests)) as step:
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
                ran = generator.run(self.target, plan, self.processes, lambda outcome: step(outcome.end))
        except generator.GeneratorFailed as problem:
            raise _error_exit(str(problem)) from None
        return RunResult.from_run(plan, ran, self.objective, self.solo, self.notes)

    def finish_run(self, plan: Plan) -> None:
        """Makes the run, keeps and shows it, and ends the command."""
        from gen_serve_bench import report
        from gen_serve_bench.report import run_page

        result = self._measure(plan)
        result.write(self.folder)
        self._show(result.as_json(), run_page(result), report.run_tables(result), report.warnings(result))
        self._end([result])

    def finish_sweep(self, plans: Sequence[Plan]) -> None:
        """The same for a run at each rate. One that is interrupted is the last."""
        from gen_serve_bench.report import sweep_page, sweep_tables
        from gen_serve_bench.results import Sweep

        result = Sweep()
        for plan in plans:
            result.runs.append(self._measure(plan))
            if result.runs[-1].interrupted is not None:
                result.notes.append("interrupted: rates that are missing were not run")
                break
        result.write(self.folder)
        self._show(result.as_json(), sweep_page(result), sweep_tables(result), result.notes)
        self._end(result.runs)

    def _show(self, summary: Any, page: str, tables: Any, lines: Sequence[str]) -> None:
        from gen_serve_bench import report

        path = self.folder / "report.html"
        path.write_text(page)
        if self.as_json:
            print(json.dumps(summary, indent=2))
        else:
            report.show(tables, [*lines, f"report: {path}"])

    def _end(self, runs: Sequence[RunResult]) -> None:
        """Raises Exit: 1 where tasks were lost or a threshold was crossed, 130 where somebody ended it, else 0."""
        lost = sum(run.figures["lost"] for run in runs)
        wrong = [f"{lost} accepted tasks never ended"] if lost else []
        wrong += [violation for run in runs for each in self.thresholds if (violation := each.violation(run))]
        for line in wrong:
            print(f"error: {line}", file=sys.stderr)
        interrupted = any(run.interrupted is not None for run in runs)
        raise typer.Exit(1 if wrong else INTERRUPTED if interrupted else 0)


@contextmanager
def _progress(description: str, total: int | None) -> Iterator[Callable[[str], None]]:
    """On stderr, where it is a terminal. What it gives moves the line by one, and says how requests end."""
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
    """Exit codes: 0 done, 1 failed or over a threshold, 2 wrong usage, 130 interrupted by Ctrl-C."""
    try:
        app(prog_name=Path(sys.argv[0]).name)
    except (OSError, ValueError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, ValueError | FileNotFoundError) else 1)
