"""`gen-serve weights`: what replicas load from the model hub, fetched before they start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from serve_app.cli import configuration
from serve_app.cli.client import ServiceError
from serve_app.cli.deploy import on_cluster
from serve_app.cli.options import Config, Json
from serve_app.cli.progress import INTERRUPTED, say
from serve_app.cli.table import Bytes, Cell, show
from serve_app.config import catalog
from serve_app.config.settings import Settings

if TYPE_CHECKING:  # the hub's package takes a while to import, and few commands need it
    from serve_app.weights.fetching import Ended, Told
    from serve_app.weights.machines import Machine
    from serve_app.weights.wanted import Wanted

app = typer.Typer(
    help="What replicas load: on which machines it is, and fetching it before they start.", no_args_is_help=True
)

_HERE: Final = "here"
_FETCHED: Final = ("checkpoint", "where", "state")
_LISTED: Final = ("for", "checkpoint", "revision", "size", "there", "missing")

Here = Annotated[bool, typer.Option("--here", help="This machine alone, though ray.address names a cluster.")]


@app.command()
def fetch(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """Fetch all that replicas load from the model hub, onto every node of ray.address that may run them, else here.

    What is there is not fetched again. Exit code 1 where something could not be fetched; all the rest is.
    """
    from serve_app.weights.machines import fetched

    ended: dict[str, tuple[Ended, ...]] = {}
    try:
        with _machines(configuration.load(config), here) as machines, _progress() as progress:
            for told in fetched(machines):
                progress.show(told)
                ended = {where: each.ended for where, each in told.items()}
    except KeyboardInterrupt:
        say("stopped: files that came whole are kept, and another fetch goes on with the others")
        os._exit(INTERRUPTED)  # the hub's threads would end the repository first
    rows = [(one.checkpoint, where, _state(one)) for where, all_ended in ended.items() for one in all_ended]
    show(_FETCHED, rows, as_json=as_json)
    if failed := sum(bool(one.problem) for all_ended in ended.values() for one in all_ended):
        raise ServiceError(f"{failed} of {len(rows)} could not be fetched, as told above; the others are there")


@app.command("list")
def list_(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """Every checkpoint that replicas load, and where it is. The hub is not asked."""
    from serve_app.weights.machines import Lost

    chosen = configuration.load(config)
    there: dict[Wanted, list[str]] = {each: [] for each in _wanted(chosen)}
    missing: dict[Wanted, list[str]] = {each: [] for each in there}
    sizes: dict[Wanted, int] = {}
    with _machines(chosen, here) as machines:
        for machine in machines:
            try:
                kept = machine.fetcher.look(machine.wanted)
            except Lost as problem:
                raise ServiceError(f"{machine.where}: {problem}") from None
            for each, found in zip(machine.wanted, kept, strict=True):
                (there if found.is_here else missing)[each].append(machine.where)
                if found.size is not None:
                    sizes[each] = found.size
    rows = [_row(each, sizes.get(each), there[each], missing[each]) for each in there]
    show(_LISTED, rows, as_json=as_json)


def _row(wanted: Wanted, size: int | None, there: Sequence[str], missing: Sequence[str]) -> tuple[Cell, ...]:
    known = None if size is None else Bytes(size)
    return wanted.who, wanted.checkpoint, wanted.revision, known, ", ".join(there), ", ".join(missing)


def _wanted(chosen: Settings) -> tuple[Wanted, ...]:
    from serve_app.weights.wanted import wanted

    return wanted(chosen, catalog.load(chosen))


@contextmanager
def _machines(chosen: Settings, here: bool) -> Iterator[list[Machine]]:
    """Within it they answer."""
    all_wanted = _wanted(chosen)
    if here or chosen.ray.address is None:
        from serve_app.weights.fetching import Fetcher
        from serve_app.weights.machines import Machine

        yield [Machine(_HERE, Fetcher(), all_wanted)]
        return
    with on_cluster(chosen):
        from serve_app.weights.nodes import nodes

        found = nodes(all_wanted)
        if nowhere := sorted({each.checkpoint for each in set(all_wanted).difference(*(m.wanted for m in found))}):
            say(f"no node there now may run what loads these: {', '.join(nowhere)}")
        yield found


def _state(ended: Ended) -> str:
    return ended.problem or ("was there" if ended.was_here else "fetched")


class _Lines:
    """A line for each folder, with a bar; above them a line for each checkpoint that has ended."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._lines: dict[str, TaskID] = {}
        self._said: dict[str, int] = {}

    def show(self, told: Mapping[str, Told]) -> None:
        for where, each in told.items():
            for one in each.ended[self._said.get(where, 0) :]:
                self._bars.console.print(f"{where}: {one.checkpoint}: {_state(one)}", markup=False, soft_wrap=True)
            self._said[where] = len(each.ended)
            if where not in self._lines:
                self._lines[where] = self._bars.add_task(where, total=None)
            name, line = f"{where}: {each.checkpoint}", self._lines[where]
            self._bars.update(line, description=name, completed=each.got, total=each.size, visible=not each.is_over)


@contextmanager
def _progress() -> Iterator[_Lines]:
    """On the terminal; elsewhere only what has ended is told."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        yield _Lines(bars)
