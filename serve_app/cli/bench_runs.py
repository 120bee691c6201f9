"""What commands of `gen-serve bench` do: make runs, show how they come along, keep what they came to."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

import httpx2
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from serve_app.cli.client import ServiceError
from serve_app.cli.service import address_and_key, find
from serve_app.cli.table import Cell, show, show_json
from serve_app.load import page
from serve_app.load.generator import generate, prepared
from serve_app.load.measured import Measured
from serve_app.load.mix import Endpoint, Mix
from serve_app.load.mix import load as load_mix
from serve_app.load.objective import NoSolo, Objective, solo_latencies, solo_requests
from serve_app.load.outcome import Outcome
from serve_app.load.plan import Plan
from serve_app.load.request import Request
from serve_app.load.run import GeneratorFailed, run
from serve_app.load.shape import Size
from serve_app.load.sweep import Sweep
from serve_app.load.target import ADAPTERS, AdapterName, Target

INTERRUPTED: Final = 130
_CONNECT_S: Final = 10


@dataclass(frozen=True, slots=True)
class Wire:
    """How the server is reached, as the options say it."""

    base_url: str | None
    key: str
    adapter: str
    limit: float
    poll_every: float
    wait: float
    finetune: str | None = None

    def target(self, mix: Mix, tenants: Sequence[str]) -> Target:
        """With a key for each of `tenants`. Raises ValueError where there is none, or no such adapter."""
        if self.adapter not in ADAPTERS:
            raise ValueError(f"--adapter should be one of {', '.join(ADAPTERS)}, not {self.adapter!r}")
        if self.wait and self.adapter != "gen":
            raise ValueError("--wait is for --adapter gen: no other server is known to take it")
        own = {tenant.name: key for tenant in mix.tenants if (key := tenant.key())}
        keys = {name: own[name] for name in tenants if name in own}
        if missing := [name for name in tenants if name not in own]:
            keys |= dict.fromkeys(missing, self._key())
        return Target(
            base_url=find(self.base_url)[0],
            adapter=cast(AdapterName, self.adapter),
            keys={name: key for name, key in keys.items() if key},
            limit=self.limit,
            poll_every=self.poll_every,
            wait=self.wait,
            finetune=self.finetune,
            template=mix.http,
        )

    def _key(self) -> str:
        """Of tenants that name none. Servers of other forms may do without."""
        if self.key or self.adapter == "gen":
            return address_and_key(self.base_url, self.key)[1]
        try:
            return address_and_key(self.base_url, "")[1]
        except ValueError:
            return ""


@dataclass(slots=True)
class Runs:
    """Runs of one command, which have the target and the objective in common."""

    target: Target
    processes: int
    objective: Objective | None = None
    notes: tuple[str, ...] = ()
    solo: Mapping[str, float] = field(default_factory=dict)

    def check(self, requests: Sequence[Request]) -> None:
        """Before much is sent. Raises ValueError for what can't be sent this way, ServiceError where nobody listens."""
        prepared(self.target, requests)
        url = httpx2.URL(self.target.base_url)
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            socket.create_connection((url.host, port), timeout=_CONNECT_S).close()
        except OSError as problem:
            raise ServiceError(f"{self.target.base_url} can't be reached: {problem.strerror or problem}") from None

    def measure_solo(self, kinds: Sequence[Request]) -> None:
        """What requests take alone, where the objective is a multiple of that. Raises ServiceError."""
        if self.objective is None or self.objective.times_solo is None:
            return
        requests = solo_requests(kinds)

        def send(request: Request) -> Outcome:
            [outcome], _ = asyncio.run(generate(self.target, [request]))
            step()
            return outcome

        with _progress("alone, one by one", len(requests)) as step:
            try:
                self.solo = solo_latencies(requests, send)
            except NoSolo as problem:
                raise ServiceError(str(problem)) from None

    def measure(self, plan: Plan) -> Measured:
        """Raises ServiceError where a generator fails."""
        told = f"{plan.settings.rate:.4g} per second"
        try:
            with _progress(told, len(plan.requests)) as step:
                ran = run(self.target, plan.requests, self.processes, lambda outcome: step(outcome.end))
        except GeneratorFailed as problem:
            raise ServiceError(str(problem)) from None
        return Measured.of(plan, ran, self.objective, self.solo, self.notes, self.target.work)


class _Step:
    """Moves a line of progress by one, and says how requests end."""

    def __init__(self, bar: Progress, description: str, total: int) -> None:
        self._bar, self._description = bar, description
        self._line = bar.add_task(description, total=total)
        self._ends: Counter[str] = Counter()

    def __call__(self, end: str = "") -> None:
        self._ends[end] += 1
        told = ", ".join(f"{count} {end}" for end, count in self._ends.items() if end and end != "served")
        self._bar.update(self._line, advance=1, description=f"{self._description}{f' ({told})' if told else ''}")


@contextmanager
def _progress(description: str, total: int) -> Iterator[_Step]:
    """On stderr, where it is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield _Step(bar, description, total)


def mix_of(file: Path | None, endpoint: str | None, size: str | None, steps: int | None) -> tuple[Mix, str]:
    """What is sent, and its name. Raises ValueError unless either a file or an endpoint is named."""
    if (file is None) == (endpoint is None):
        raise ValueError("name what is sent: --mix FILE (configs/load.yaml is one), or --endpoint NAME")
    if file is not None:
        if size is not None or steps is not None:
            raise ValueError("--size and --steps are for --endpoint; a mix has its own")
        return load_mix(file), file.name
    assert endpoint is not None
    chosen = Endpoint(
        endpoint=endpoint.removeprefix("/v1/"),
        sizes=[] if size is None else [Size.parsed(size)],
        steps=[] if steps is None else [steps],
    )
    return Mix(endpoints=[chosen]), chosen.endpoint


def objective_of(text: str | None) -> Objective | None:
    return None if text is None else Objective.parsed(text)


def folder_of(output: Path | None) -> Path:
    """Raises ValueError for one that has something in it: no report replaces another."""
    folder = output or Path(f"load-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there and not empty; name another folder with --output")
    return folder


def finish_run(run: Measured, folder: Path, *, as_json: bool) -> int:
    """Keeps and shows it. Returns the exit code, or raises ServiceError where tasks were lost."""
    run.write(folder)
    report = page.write(page.of_run(run), folder)
    _show_run(run, report, as_json=as_json)
    return _code(run.lost, run.interrupted is not None)


def finish_sweep(sweep: Sweep, folder: Path, *, as_json: bool) -> int:
    """As `finish_run`."""
    sweep.write(folder)
    report = page.write(page.of_sweep(sweep), folder)
    if as_json:
        show_json(sweep.as_json())
    else:
        rates = sweep.rates()
        show(tuple(rates[0]) if rates else ("rate",), (tuple(each.values()) for each in rates))
        for line in (*_knee(sweep), *sweep.notes, f"report: {report}"):
            print(line)
    return _code(sweep.lost, any(run.interrupted is not None for run in sweep.runs))


def _knee(sweep: Sweep) -> list[str]:
    if sweep.knee is None:
        return []
    holds, fails = sweep.knee.holds, sweep.knee.fails
    return [
        f"knee: {holds.per_s:.4g} per second hold ({holds.attainment:.2%} of {holds.requests} requests in "
        f"{len(holds.trials)} runs), {fails.per_s:.4g} don't ({fails.attainment:.2%} of {fails.requests} in "
        f"{len(fails.trials)})"
    ]


def _show_run(run: Measured, report: Path, *, as_json: bool) -> None:
    if as_json:
        show_json(run.as_json())
        return
    figures = run.figures
    show(("seconds", "n", "p50", "p90", "p95", "p99", "p99.9", "max"), _times(figures))
    print()
    show(("what", "value"), _facts(figures))
    print()
    for limit in run.generator["limits"]:
        print(f"the generator was the limit: {limit}")
    for line in (*run.notes, f"report: {report}"):
        print(line)


def _times(figures: Mapping[str, Any]) -> Iterator[tuple[Cell, ...]]:
    for name in page.plots.NAMES:
        if spread := figures[name]:
            yield name.replace("_", " "), *spread.values()


def _facts(figures: Mapping[str, Any]) -> Iterator[tuple[Cell, ...]]:
    names = ("requests", "attainment", "goodput_per_s", "throughput_per_s", "megapixel_steps_per_s", "polls_per_task")
    for name in names:
        yield name.replace("_per_s", " per s").replace("_", " "), figures[name]
    for end, count in figures["ends"].items():
        yield end, count
    for kind, ending in (("refusals", "refused"), ("failures", "failed")):
        for reason, count in figures[kind].items():
            yield f"{ending}: {reason}", count
    if (index := figures["fairness"]["jain"]) is not None:
        yield f"Jain's index, {figures['fairness']['counted_in']}", index


def _code(lost: int, interrupted: bool) -> int:
    if lost:
        raise ServiceError(f"{lost} accepted tasks never ended")
    return INTERRUPTED if interrupted else 0
