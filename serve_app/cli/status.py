"""`gen-serve status`: whether the service is up, and what waits where."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from serve_app.cli import figures
from serve_app.cli.client import ServiceError
from serve_app.cli.figures import NoFigures
from serve_app.cli.options import BaseUrl, Json
from serve_app.cli.progress import say
from serve_app.cli.service import connect_without_key, find
from serve_app.cli.table import show, show_json

MetricsUrl = Annotated[
    str | None,
    typer.Option(
        help="Address of its figures; else that of the service on this machine.",
        envvar="GEN_METRICS_URL",
        show_default=False,
    ),
]
MetricsToken = Annotated[
    str, typer.Option(help="metrics.token, if it is set.", envvar="GEN_METRICS__TOKEN", show_default=False)
]


def status(
    as_json: Json = False, base_url: BaseUrl = None, metrics_url: MetricsUrl = None, metrics_token: MetricsToken = ""
) -> None:
    """Show whether the service is ready, and its queues. Exit code 1 when it is not ready."""
    url, service = find(base_url)
    with connect_without_key(base_url) as client:
        ready = client.ready()
    lanes, missing = _lanes(metrics_url or (service.metrics_url if service else None), metrics_token)
    if as_json:
        show_json({"base_url": url, "ready": ready, "lanes": lanes})
    else:
        if ready:
            print(f"{url}: ready")
        if lanes is None:
            say(f"no figures: {missing}")
        else:
            columns = ("lane", "queued", "leased", "suspects")
            show(columns, ([lane, *map(counts.get, columns[1:])] for lane, counts in lanes.items()))
    if not ready:
        raise ServiceError(f"{url} is not ready, or not there; gen-serve up starts a service")


def _lanes(metrics_url: str | None, token: str) -> tuple[dict[str, dict[str, Any]] | None, str]:
    """By lane, or why there is nothing to show."""
    try:
        return figures.read(metrics_url, token), ""
    except NoFigures as problem:
        return None, str(problem)
