"""Commands of clusters: `deploy`, `down`, `check`, `weights`."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from serve_app.cli.output import INTERRUPTED, Bytes, say, show, show_json
from serve_app.cli.service import Config, Json, ServiceError
from serve_app.cli.store import load_settings, settings_file
from serve_app.cluster.finding import Finding
from serve_app.config import catalog, settings
from serve_app.config.replicas import complete
from serve_app.config.settings import Settings
from serve_app.launcher import ray_flags

if TYPE_CHECKING:
    from serve_app.cluster.weights import Ended, LocalCheckpoint, RequiredCheckpoint


def deploy(
    config: Config = None,
    restart: Annotated[bool, typer.Option("--restart", help="Restart all replicas, changed or not.")] = False,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Don't look first whether all is fit.")] = False,
) -> None:
    """Deploy the service onto the Ray cluster of ray.address; replicas of what is unchanged go on as they are.

    \b
    gen-serve deploy --config /etc/gen-serve/config.yaml
    """
    chosen = complete(settings.load(settings_file(config)))
    with on_cluster(chosen):
        from serve_app import application
        from serve_app.cluster.deploy import deploy_application, listen_everywhere
        from serve_app.cluster.preflight import run_preflight

        if not unchecked and not run_preflight(chosen, ray_flags.FLAGS):
            raise ServiceError("nothing was changed: fix what is refused above, or look at it again: gen-serve check")
        sys.stdout.flush()
        try:
            if elsewhere := listen_everywhere(chosen):
                say(elsewhere)
            deploy_application(application.build(chosen, secrets.token_hex(4) if restart else ""))
        except RuntimeError as problem:
            raise ServiceError(str(problem)) from None
    print("deployed, and running")


def down(config: Config = None) -> None:
    """Take the service off the Ray cluster of ray.address; other applications there stay. Nothing accepted is lost."""
    chosen = settings.load(settings_file(config))
    with on_cluster(chosen):
        from serve_app.cluster.deploy import remove_application

        if not remove_application():
            raise ServiceError("no application of this service runs on that cluster")
    print("taken off the cluster; accepted tasks go on once it is deployed again")


@contextmanager
def on_cluster(chosen: Settings) -> Iterator[None]:
    """Within it this process is a driver of the cluster that is set. Raises ValueError where none is."""
    if chosen.ray.address is None:
        raise ValueError(
            "ray.address is not set: it names the cluster, auto that of this machine; gen-serve up needs none"
        )
    ray_flags.apply()  # before Ray is imported
    from serve_app.cluster.deploy import NotJoined, joined

    try:
        with joined(chosen.ray.address):
            yield
    except NotJoined as problem:
        raise ServiceError(str(problem)) from None


def check(as_json: Json = False, config: Config = None) -> None:
    """Look at Redis, the object store, clocks, weights, GPUs, and every node of the cluster of ray.address.

    Exit code 1 where something is refused: tasks could be lost, or nothing would work.
    """
    from serve_app.cluster.preflight import may_serve, show_findings

    found = _found(complete(load_settings(config)))
    if as_json:
        show_json([asdict(each) for each in found])
    else:
        show_findings(found)
    if not may_serve(found):
        raise ServiceError("not fit to serve: fix what is refused")


def _found(chosen: Settings) -> list[Finding]:
    from serve_app.cluster.preflight import check_everything

    if chosen.ray.address is None:
        return check_everything(chosen, None)
    with on_cluster(chosen):
        return check_everything(chosen, ray_flags.FLAGS)


weights = typer.Typer(
    help="What replicas load: on which machines it is, and fetching it before they start.", no_args_is_help=True
)

_HERE: Final = "here"

Here = Annotated[bool, typer.Option("--here", help="This machine alone, though ray.address names a cluster.")]


@weights.command("fetch")
def fetch(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """Fetch all that replicas load from the model hub, onto every node of ray.address that may run them, else here.

    What is there is not fetched again. Exit code 1 where something could not be fetched; all the rest is.
    """
    chosen = load_settings(config)
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

    from serve_app.cluster.weights import Nodes, fetch_weights

    try:
        if here or chosen.ray.address is None:
            note((_HERE, ended) for ended in fetch_weights(wanted))
        else:
            with on_cluster(chosen):
                nodes = Nodes(wanted)
                _say_what_fits_nowhere(wanted, nodes.wanted)
                note(nodes.fetch())
    except KeyboardInterrupt:
        say("stopped: files that came whole are kept, and another fetch goes on with the others")
        os._exit(INTERRUPTED)  # the hub's threads would end the repository first
    show(("checkpoint", "where", "state"), rows, as_json=as_json)
    if failed:
        raise ServiceError(f"{failed} of {len(rows)} could not be fetched, as told above; the others are there")


@weights.command("list")
def list_(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """Every checkpoint that replicas load, and where it is. The hub is not asked."""
    from ray.exceptions import RayError

    from serve_app.cluster.weights import Nodes, find_weights

    chosen = load_settings(config)
    wanted = _wanted(chosen)
    local = here or chosen.ray.address is None
    with nullcontext() if local else on_cluster(chosen):
        if local:
            loads: Mapping[str, tuple[RequiredCheckpoint, ...]] = {_HERE: wanted}
            found: Mapping[str, list[LocalCheckpoint]] = {_HERE: find_weights(wanted)}
        else:
            nodes = Nodes(wanted)
            _say_what_fits_nowhere(wanted, nodes.wanted)
            try:
                loads, found = nodes.wanted, nodes.look()
            except RayError as problem:
                raise ServiceError(str(problem).strip().splitlines()[-1]) from None
    kept = {(each, where): one for where in loads for each, one in zip(loads[where], found[where], strict=True)}

    def places(wanted: RequiredCheckpoint, *, is_here: bool) -> str:
        return ", ".join(where for (each, where), one in kept.items() if each == wanted and one.is_here is is_here)

    rows = []
    for each in wanted:
        size = next((one.size for (other, _), one in kept.items() if other == each and one.size is not None), None)
        shown = None if size is None else Bytes(size)
        missing = places(each, is_here=False)
        rows.append((each.who, each.checkpoint, each.revision, shown, places(each, is_here=True), missing))
    show(("for", "checkpoint", "revision", "size", "there", "missing"), rows, as_json=as_json)


def _wanted(chosen: Settings) -> tuple[RequiredCheckpoint, ...]:
    from serve_app.cluster.weights import wanted

    return wanted(chosen, catalog.load(chosen))


def _say_what_fits_nowhere(
    wanted: tuple[RequiredCheckpoint, ...], loads: Mapping[str, tuple[RequiredCheckpoint, ...]]
) -> None:
    if nowhere := sorted({each.checkpoint for each in set(wanted).difference(*loads.values())}):
        say(f"no node there now may run what loads these: {', '.join(nowhere)}")
