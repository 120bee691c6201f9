"""`gen-serve check`: whether what the service needs is fit for it."""

from __future__ import annotations

from dataclasses import asdict

from serve_app.cli import configuration
from serve_app.cli.client import ServiceError
from serve_app.cli.deploy import on_cluster
from serve_app.cli.options import Config, Json
from serve_app.cli.table import show_json
from serve_app.config.bound import complete
from serve_app.config.settings import Settings
from serve_app.local import ray_flags
from serve_app.preflight.finding import Finding


def check(as_json: Json = False, config: Config = None) -> None:
    """Look at Redis, the object store, clocks, weights, GPUs, and every node of the cluster of ray.address.

    Exit code 1 where something is refused: tasks could be lost, or nothing would work.
    """
    from serve_app.preflight import report

    found = _found(complete(configuration.load(config)))
    if as_json:
        show_json([asdict(each) for each in found])
    else:
        report.show(found)
    if not report.may_serve(found):
        raise ServiceError("not fit to serve: mend what is refused")


def _found(chosen: Settings) -> list[Finding]:
    from serve_app.preflight import report

    if chosen.ray.address is None:
        return report.look(chosen, None)
    with on_cluster(chosen):
        return report.look(chosen, ray_flags.FLAGS)
