"""`gen-serve weights`: what replicas load from the model hub, fetched before they start."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Final

import typer

from serve_app.cli import configuration
from serve_app.cli.client import ServiceError
from serve_app.cli.deploy import on_cluster
from serve_app.cli.options import Config, Json
from serve_app.cli.progress import INTERRUPTED, say
from serve_app.cli.table import Bytes, show
from serve_app.config import catalog
from serve_app.config.settings import Settings

if TYPE_CHECKING:  # the hub's package takes a while to import, and few commands need it
    from serve_app.weights.fetching import Ended, Kept
    from serve_app.weights.wanted import Wanted

app = typer.Typer(
    help="What replicas load: on which machines it is, and fetching it before they start.", no_args_is_help=True
)

_HERE: Final = "here"

Here = Annotated[bool, typer.Option("--here", help="This machine alone, though ray.address names a cluster.")]


@app.command("fetch")
def fetch(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """Fetch all that replicas load from the model hub, onto every node of ray.address that may run them, else here.

    What is there is not fetched again. Exit code 1 where something could not be fetched; all the rest is.
    """
    chosen = configuration.load(config)
    wanted = _wanted(chosen)
    rows: list[tuple[str, str, str]] = []
    failed = 0

    def note(found: Iterable[tuple[str, Ended]]) -> None:
        nonlocal failed
        for where, ended in found:
            state = ended.problem or ("was there" if ended.was_here else "fetched")
            rows.append((ended.checkpoint, where, state))
            failed += bool(ended.problem)
            say(f"{where}: {ended.checkpoint}: {state}")

    from serve_app.weights import fetching

    try:
        if here or chosen.ray.address is None:
            note((_HERE, ended) for ended in fetching.fetch(wanted))
        else:
            with on_cluster(chosen):
                nodes = fetching.Nodes(wanted)
                _say_what_fits_nowhere(wanted, nodes.wanted)
                note(nodes.fetch())
    except KeyboardInterrupt:
        say("stopped: files that came whole are kept, and another fetch goes on with the others")
        os._exit(INTERRUPTED)  # the hub's threads would end the repository first
    show(("checkpoint", "where", "state"), rows, as_json=as_json)
    if failed:
        raise ServiceError(f"{failed} of {len(rows)} could not be fetched, as told above; the others are there")


@app.command("list")
def list_(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """Every checkpoint that replicas load, and where it is. The hub is not asked."""
    from ray.exceptions import RayError

    from serve_app.weights import fetching

    chosen = configuration.load(config)
    wanted = _wanted(chosen)
    local = here or chosen.ray.address is None
    with nullcontext() if local else on_cluster(chosen):
        if local:
            loads: Mapping[str, tuple[Wanted, ...]] = {_HERE: wanted}
            found: Mapping[str, list[Kept]] = {_HERE: fetching.look(wanted)}
        else:
            nodes = fetching.Nodes(wanted)
            _say_what_fits_nowhere(wanted, nodes.wanted)
            try:
                loads, found = nodes.wanted, nodes.look()
            except RayError as problem:
                raise ServiceError(str(problem).strip().splitlines()[-1]) from None
    kept = {(each, where): one for where in loads for each, one in zip(loads[where], found[where], strict=True)}

    def places(wanted: Wanted, *, is_here: bool) -> str:
        return ", ".join(where for (each, where), one in kept.items() if each == wanted and one.is_here is is_here)

    rows = []
    for each in wanted:
        size = next((one.size for (other, _), one in kept.items() if other == each and one.size is not None), None)
        shown = None if size is None else Bytes(size)
        missing = places(each, is_here=False)
        rows.append((each.who, each.checkpoint, each.revision, shown, places(each, is_here=True), missing))
    show(("for", "checkpoint", "revision", "size", "there", "missing"), rows, as_json=as_json)


def _wanted(chosen: Settings) -> tuple[Wanted, ...]:
    from serve_app.weights.wanted import wanted

    return wanted(chosen, catalog.load(chosen))


def _say_what_fits_nowhere(wanted: tuple[Wanted, ...], loads: Mapping[str, tuple[Wanted, ...]]) -> None:
    if nowhere := sorted({each.checkpoint for each in set(wanted).difference(*loads.values())}):
        say(f"no node there now may run what loads these: {', '.join(nowhere)}")
