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
from serve_app.cluster.checks.result import CheckResult
from serve_app.config import catalog, settings
from serve_app.config.replicas import complete
from serve_app.config.settings import Settings
from serve_app.launcher import ray_flags

if TYPE_CHECKING:
    from serve_app.cluster.checkpoints import RequiredCheckpoint
    from serve_app.cluster.weights import FetchResult, LocalCheckpoint


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
            application_to_run = application.build(chosen, secrets.token_hex(4) if restart else "")
            faults = deploy_application(application_to_run, catalog.load(chosen).models)
        except RuntimeError as problem:
            raise ServiceError(str(problem)) from None
    if faults:
        named = "; ".join(f"models.{name} can't be loaded: {fault.reason}" for name, fault in faults.items())
        raise ServiceError(f"deployed, but {named}. Replicas of the version before go on, where there were any")
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
    from serve_app.cluster.deploy import ClusterUnreachable, connect

    try:
        with connect(chosen.ray.address):
            yield
    except ClusterUnreachable as problem:
        raise ServiceError(str(problem)) from None


def check(as_json: Json = False, config: Config = None) -> None:
    """Look at Redis, the object store, clocks, weights, GPUs, and every node of the cluster of ray.address.

    Exit code 1 where something is refused: tasks could be lost, or nothing would work.
    """
    from serve_app.cluster.preflight import may_serve, print_results

    results = _check(complete(load_settings(config)))
    if as_json:
        show_json([asdict(each) for each in results])
    else:
        print_results(results)
    if not may_serve(results):
        raise ServiceError("not fit to serve: fix what is refused")


def _check(chosen: Settings) -> list[CheckResult]:
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
    checkpoints = _load_required(chosen)
    rows: list[tuple[str, str, str]] = []
    failures = 0

    def note(results: Iterable[tuple[str, FetchResult]]) -> None:
        nonlocal failures
        for where, result in results:
            state = result.problem or ("was there" if result.was_here else "fetched")
            rows.append((result.checkpoint, where, state))
            failures += bool(result.problem)
            say(f"{where}: {result.checkpoint}: {state}")

    from serve_app.cluster.weights import Nodes, fetch_weights

    try:
        if here or chosen.ray.address is None:
            note((_HERE, result) for result in fetch_weights(checkpoints, chosen.network.proxy))
        else:
            with on_cluster(chosen):
                nodes = Nodes(checkpoints)
                _say_what_fits_nowhere(checkpoints, nodes.checkpoints)
                note(nodes.fetch(chosen.network.proxy))
    except KeyboardInterrupt:
        say("stopped: files that came whole are kept, and another fetch goes on with the others")
        os._exit(INTERRUPTED)  # the hub's threads would end the repository first
    show(("checkpoint", "where", "state"), rows, as_json=as_json)
    if failures:
        raise ServiceError(f"{failures} of {len(rows)} could not be fetched, as told above; the others are there")


@weights.command("list")
def list_(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """Every checkpoint that replicas load, and where it is. The hub is not asked."""
    from ray.exceptions import RayError

    from serve_app.cluster.weights import Nodes, find_weights

    chosen = load_settings(config)
    checkpoints = _load_required(chosen)
    local = here or chosen.ray.address is None
    with nullcontext() if local else on_cluster(chosen):
        if local:
            loads: Mapping[str, tuple[RequiredCheckpoint, ...]] = {_HERE: checkpoints}
            local_checkpoints: Mapping[str, list[LocalCheckpoint]] = {_HERE: find_weights(checkpoints)}
        else:
            nodes = Nodes(checkpoints)
            _say_what_fits_nowhere(checkpoints, nodes.checkpoints)
            try:
                loads, local_checkpoints = nodes.checkpoints, nodes.find()
            except RayError as problem:
                raise ServiceError(str(problem).strip().splitlines()[-1]) from None
    by_place = {
        (each, where): one for where in loads for each, one in zip(loads[where], local_checkpoints[where], strict=True)
    }

    def places(checkpoints: RequiredCheckpoint, *, is_here: bool) -> str:
        return ", ".join(
            where for (each, where), one in by_place.items() if each == checkpoints and one.is_here is is_here
        )

    rows = []
    for each in checkpoints:
        size = next((one.size for (other, _), one in by_place.items() if other == each and one.size is not None), None)
        size_cell = None if size is None else Bytes(size)
        missing = places(each, is_here=False)
        rows.append((each.loaded_by, each.checkpoint, each.revision, size_cell, places(each, is_here=True), missing))
    show(("for", "checkpoint", "revision", "size", "there", "missing"), rows, as_json=as_json)


def _load_required(chosen: Settings) -> tuple[RequiredCheckpoint, ...]:
    from serve_app.cluster.checkpoints import required_checkpoints

    return required_checkpoints(chosen, catalog.load(chosen))


def _say_what_fits_nowhere(
    checkpoints: tuple[RequiredCheckpoint, ...], loads: Mapping[str, tuple[RequiredCheckpoint, ...]]
) -> None:
    if nowhere := sorted({each.checkpoint for each in set(checkpoints).difference(*loads.values())}):
        say(f"no node there now may run what loads these: {', '.join(nowhere)}")
