"""`gen-serve deploy` and `gen-serve down`: the application on a cluster that runs."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from serve_app.cli import configuration
from serve_app.cli.client import ServiceError
from serve_app.cli.options import Config
from serve_app.cli.progress import say
from serve_app.config import settings
from serve_app.config.bound import complete
from serve_app.config.settings import Settings
from serve_app.local import ray_flags


def deploy(
    config: Config = None,
    restart: Annotated[bool, typer.Option("--restart", help="Restart all replicas, changed or not.")] = False,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Don't look first whether all is fit.")] = False,
) -> None:
    """Deploy the service onto the Ray cluster of ray.address; replicas of what is unchanged go on as they are.

    \b
    gen-serve deploy --config /etc/gen-serve/config.yaml
    """
    chosen = complete(settings.load(configuration.named_or_here(config)))
    with on_cluster(chosen):
        from serve_app import application
        from serve_app.cluster import application as cluster
        from serve_app.preflight import report

        if not unchecked and not report.run(chosen, ray_flags.FLAGS):
            raise ServiceError("nothing was changed: mend what is refused above, or look at it again: gen-serve check")
        sys.stdout.flush()
        try:
            if elsewhere := cluster.listen(chosen):
                say(elsewhere)
            cluster.deploy(application.build(chosen, secrets.token_hex(4) if restart else ""))
        except RuntimeError as problem:
            raise ServiceError(str(problem)) from None
    print("deployed, and running")


def down(config: Config = None) -> None:
    """Take the service off the Ray cluster of ray.address; other applications there stay. Nothing accepted is lost."""
    chosen = settings.load(configuration.named_or_here(config))
    with on_cluster(chosen):
        from serve_app.cluster import application as cluster

        if not cluster.remove():
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
    from serve_app.cluster.application import NotJoined, joined

    try:
        with joined(chosen.ray.address):
            yield
    except NotJoined as problem:
        raise ServiceError(str(problem)) from None
