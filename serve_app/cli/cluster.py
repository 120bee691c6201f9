"""Commands for clusters: `deploy`, `down`, `check`, `weights`."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from serve_app.cli.output import INTERRUPTED, Bytes, say, show, show_json
from serve_app.cli.service import Config, Json, ServiceError
from serve_app.cli.store import load_settings, settings_file
from serve_app.cluster.checks.result import CheckResult, Verdict
from serve_app.config import catalog
from serve_app.config import settings as all_settings
from serve_app.config.replicas import REDIS_URL, complete, generated_secrets
from serve_app.config.settings import Settings
from serve_app.launcher import ray_flags

if TYPE_CHECKING:
    from serve_app.cluster.checkpoints import RequiredCheckpoint
    from serve_app.cluster.weights import FetchResult, LocalCheckpoint


def deploy(
    config: Config = None,
    restart: Annotated[bool, typer.Option("--restart", help="Restart all replicas, not only changed ones.")] = False,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Skip gen-serve check.")] = False,
) -> None:
    """Deploy the service to the Ray cluster of ray.address. Replicas of unchanged deployments keep running.

    \b
    gen-serve deploy --config /etc/gen-serve/config.yaml
    """
    settings = complete(all_settings.load(settings_file(config)))
    with on_cluster(settings):
        from serve_app import application
        from serve_app.cluster.deploy import deploy_application, listen_everywhere
        from serve_app.cluster.preflight import run_preflight

        if not unchecked and not run_preflight(settings, ray_flags.FLAGS):
            raise ServiceError("nothing was changed: fix what is refused above; gen-serve check shows it again")
        sys.stdout.flush()
        try:
            if message := listen_everywhere(settings):
                say(message)
            new = application.build(settings, secrets.token_hex(4) if restart else "")
            faults = deploy_application(new, catalog.load(settings).models)
        except RuntimeError as problem:
            raise ServiceError(str(problem)) from None
    if faults:
        reasons = "; ".join(f"models.{name} can't be loaded: {fault.reason}" for name, fault in faults.items())
        raise ServiceError(f"deployed, but {reasons}. Replicas of the previous version keep running, if any")
    print("deployed, and running")


def down(config: Config = None) -> None:
    """Remove the service from the Ray cluster of ray.address. Accepted tasks stay in the task store."""
    settings = all_settings.load(settings_file(config))
    with on_cluster(settings):
        from serve_app.cluster.deploy import remove_application

        if not remove_application():
            raise ServiceError("no application of this service runs on that cluster")
    print("removed from the cluster; accepted tasks continue after the next deploy")


@contextmanager
def on_cluster(settings: Settings) -> Iterator[None]:
    """Connects this process to the cluster of `ray.address`. Raises ValueError if that is not set."""
    if settings.ray.address is None:
        raise ValueError(
            "ray.address is not set: set it to the cluster's address, or to auto for the cluster of this machine; "
            "gen-serve up needs none"
        )
    ray_flags.apply()  # before Ray is imported
    from serve_app.cluster.deploy import ClusterUnreachable, connect

    try:
        with connect(settings.ray.address):
            yield
    except ClusterUnreachable as problem:
        raise ServiceError(str(problem)) from None


def check(as_json: Json = False, config: Config = None) -> None:
    """Check Redis, the object store, clocks, weights, GPUs, and every node of the cluster of ray.address.

    Exit code 1 if a check refuses: tasks could be lost, or the service would not work.
    """
    from serve_app.cluster.preflight import may_serve, print_results

    results = _check(load_settings(config))
    if as_json:
        show_json([asdict(each) for each in results])
    else:
        print_results(results)
    if not may_serve(results):
        raise ServiceError("not fit to serve: fix what is refused above")


def _check(settings: Settings) -> list[CheckResult]:
    from serve_app.cluster.preflight import check_everything, check_settings

    starts_redis = settings.redis.url is None and settings.ray.address is None
    if starts_redis and REDIS_URL not in generated_secrets(settings.data_dir):
        missing = CheckResult(
            "redis", "here", Verdict.WARNING, "none runs yet, so nothing else was checked", "gen-serve up"
        )
        return [*check_settings(settings), missing]
    settings = complete(settings)
    if settings.ray.address is None:
        return check_everything(settings, None)
    with on_cluster(settings):
        return check_everything(settings, ray_flags.FLAGS)


weights = typer.Typer(help="Weights of models: list them by machine, or fetch them in advance.", no_args_is_help=True)

_HERE: Final = "here"

Here = Annotated[bool, typer.Option("--here", help="Only this machine, not the cluster of ray.address.")]


@weights.command("fetch")
def fetch(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """Fetch all weights from the model hub to each node that may run their replicas; without ray.address, to this one.

    Complete files are not fetched again. Exit code 1 if a checkpoint could not be fetched; the others still are.
    """
    settings = load_settings(config)
    checkpoints = _load_required(settings)
    results: list[tuple[str, FetchResult]] = []
    try:
        for where, result in _fetch(settings, checkpoints, is_local=here or settings.ray.address is None):
            results.append((where, result))
            say(f"{where}: {result.checkpoint}: {_fetch_state(result)}")
    except KeyboardInterrupt:
        say("stopped: complete files are kept, and the next fetch continues with the others")
        os._exit(INTERRUPTED)  # a normal exit would wait for the hub's threads to finish the repository
    rows = [(result.checkpoint, where, _fetch_state(result)) for where, result in results]
    show(("checkpoint", "where", "state"), rows, as_json=as_json)
    if failures := sum(bool(result.problem) for _, result in results):
        raise ServiceError(f"{failures} of {len(rows)} could not be fetched, see above; the others are here")


def _fetch(
    settings: Settings, checkpoints: tuple[RequiredCheckpoint, ...], *, is_local: bool
) -> Iterator[tuple[str, FetchResult]]:
    from serve_app.cluster.weights import Nodes, fetch_weights

    if is_local:
        yield from ((_HERE, result) for result in fetch_weights(checkpoints, settings.network.proxy))
        return
    with on_cluster(settings):
        nodes = Nodes(checkpoints)
        _report_unplaced(checkpoints, nodes.checkpoints)
        yield from nodes.fetch(settings.network.proxy)


def _fetch_state(result: FetchResult) -> str:
    return result.problem or ("was there" if result.was_here else "fetched")


@weights.command("list")
def list_(here: Here = False, as_json: Json = False, config: Config = None) -> None:
    """List the checkpoints of all replicas, and the machines that have them. It does not ask the hub."""
    from ray.exceptions import RayError

    from serve_app.cluster.weights import Nodes, find_weights

    settings = load_settings(config)
    checkpoints = _load_required(settings)
    local = here or settings.ray.address is None
    with nullcontext() if local else on_cluster(settings):
        if local:
            loads: Mapping[str, tuple[RequiredCheckpoint, ...]] = {_HERE: checkpoints}
            local_checkpoints: Mapping[str, list[LocalCheckpoint]] = {_HERE: find_weights(checkpoints)}
        else:
            nodes = Nodes(checkpoints)
            _report_unplaced(checkpoints, nodes.checkpoints)
            try:
                loads, local_checkpoints = nodes.checkpoints, nodes.find()
            except RayError as problem:
                raise ServiceError(str(problem).strip().splitlines()[-1]) from None
    rows = []
    for each in checkpoints:
        copies = {
            where: copy
            for where in loads
            for other, copy in zip(loads[where], local_checkpoints[where], strict=True)
            if other == each
        }
        size = next((Bytes(copy.size) for copy in copies.values() if copy.size is not None), None)
        there = ", ".join(where for where, copy in copies.items() if copy.is_here)
        missing = ", ".join(where for where, copy in copies.items() if not copy.is_here)
        rows.append((each.loaded_by, each.checkpoint, each.revision, size, there, missing))
    show(("for", "checkpoint", "revision", "size", "there", "missing"), rows, as_json=as_json)


def _load_required(settings: Settings) -> tuple[RequiredCheckpoint, ...]:
    from serve_app.cluster.checkpoints import required_checkpoints

    return required_checkpoints(settings, catalog.load(settings))


def _report_unplaced(
    checkpoints: tuple[RequiredCheckpoint, ...], loads: Mapping[str, tuple[RequiredCheckpoint, ...]]
) -> None:
    if unplaced := sorted({each.checkpoint for each in set(checkpoints).difference(*loads.values())}):
        say(f"no node of the cluster can run the replicas that load {', '.join(unplaced)}")
