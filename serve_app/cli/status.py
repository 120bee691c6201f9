"""`gen-serve status`: whether the service is up, what waits where, and for how long."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console, Group
from rich.live import Live

from serve_app.cli import figures, fleet
from serve_app.cli.client import ServiceError
from serve_app.cli.figures import NoFigures
from serve_app.cli.options import BaseUrl, Json, Key
from serve_app.cli.progress import say
from serve_app.cli.service import connect_without_key, find
from serve_app.cli.table import Cell, moment, show, show_json, table

Lanes: TypeAlias = Mapping[str, Mapping[str, Any]]
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


Watch = Annotated[bool, typer.Option("--watch", help="Draw it anew every two seconds, until Ctrl-C.")]
_OPERATORS: Final = ("lane", "queued", "queued s", "wait s", "running", "replicas", "step s", "last error")
_FIGURES: Final = ("lane", "queued", "leased", "suspects")
_EVERY_S: Final = 2.0


def status(
    as_json: Json = False,
    watch: Watch = False,
    base_url: BaseUrl = None,
    key: Key = "",
    metrics_url: MetricsUrl = None,
    metrics_token: MetricsToken = "",
) -> None:
    """Show whether the service is ready, and its queues. Exit code 1 when it is not ready.

    An operator's key, or the one of the service on this machine, shows replicas, waits in seconds and last errors, too.
    """
    seen = _Seen(base_url, key, metrics_url, metrics_token)
    if watch:
        _draw(seen)
        return
    ready, lanes, missing = seen.look()
    if as_json:
        show_json({"base_url": seen.url, "ready": ready, "lanes": lanes})
    else:
        if ready:
            print(f"{seen.url}: ready")
        if lanes is None:
            say(f"no figures: {missing}")
        else:
            show(*_table(lanes))
    if not ready:
        raise ServiceError(f"{seen.url} is not ready, or not there; gen-serve up starts a service")


class _Seen:
    """One service, looked at again and again."""

    def __init__(self, base_url: str | None, key: str, metrics_url: str | None, metrics_token: str) -> None:
        self.url, service = find(base_url)
        self._base_url = base_url
        self._key = key or (_operator_key(service.data_dir) if service else "")
        self._metrics = metrics_url or (service.metrics_url if service else None), metrics_token

    def look(self) -> tuple[bool, Lanes | None, str]:
        """Whether it is ready, what there is of its lanes, or why there is nothing."""
        with connect_without_key(self._base_url) as client:
            ready = client.ready()
        if ready and self._key and (lanes := fleet.read(self.url, self._key)) is not None:
            return ready, lanes, ""
        try:
            return ready, figures.read(*self._metrics), ""
        except NoFigures as problem:
            return ready, None, str(problem)


def _draw(seen: _Seen) -> None:
    console = Console()
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            ready, lanes, missing = seen.look()
            head = f"{seen.url}: {'ready' if ready else 'not ready'}"
            body = table(*_table(lanes)) if lanes else f"no figures: {missing}"
            live.update(Group(head, body), refresh=True)
            time.sleep(_EVERY_S)


def _table(lanes: Lanes) -> tuple[Sequence[str], list[Sequence[Cell]]]:
    if all("replicas" in lane for lane in lanes.values()):
        return _OPERATORS, [_row(name, lane) for name, lane in lanes.items()]
    return _FIGURES, [(name, *map(lane.get, _FIGURES[1:])) for name, lane in lanes.items()]


def _row(name: str, lane: Mapping[str, Any]) -> Sequence[Cell]:
    replicas, failures = lane["replicas"], lane["failures"]
    return (
        name,
        lane["queued"] + lane["suspects"],
        _rounded(lane["queued_s"]),
        _rounded(lane["predicted_wait_s"]),
        lane["running"],
        "unknown" if replicas is None else " ".join(f"{count} {state.lower()}" for state, count in replicas.items()),
        lane["step_s"],
        f"{moment(failures[0]['at'])} {failures[0]['error']}" if failures else "",
    )


def _rounded(seconds: float | None) -> Cell:
    return None if seconds is None else round(seconds, 1)


def _operator_key(folder: Path) -> str:
    """Of the service on this machine, for who may read its files."""
    path = folder / "operator-key"
    return path.read_text().strip() if os.access(path, os.R_OK) else ""
