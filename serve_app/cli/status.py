"""The command `gen-serve status`: readiness, queues and waits."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import httpx2
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console, Group
from rich.live import Live

from serve_app.cli.output import Cell, moment, say, show, show_json, table
from serve_app.cli.service import BaseUrl, Json, Key, ServiceError, connect_without_key, find_service

_TIMEOUT_S = 5

_NAMES = {
    "gen_tasks_queued": "queued",
    "gen_tasks_leased": "leased",
    "gen_tasks_quarantined": "quarantined",
}


class MetricsUnavailable(Exception):
    """The metrics can't be read. The message is for a person."""


def read_queues(metrics_url: str | None, token: str = "") -> dict[str, dict[str, int]]:
    """Returns by model the counts `queued`, `leased` and `quarantined`. Raises MetricsUnavailable."""
    if metrics_url is None:
        raise MetricsUnavailable(
            "the service is not on this machine; name the address of its metrics with --metrics-url"
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx2.get(metrics_url, headers=headers, timeout=_TIMEOUT_S, trust_env=False)
        if answer.status_code == 401:
            raise MetricsUnavailable(f"{metrics_url} requires metrics.token; pass it with --metrics-token")
        answer.raise_for_status()
        families = list(text_string_to_metric_families(answer.text))
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as problem:
        raise MetricsUnavailable(f"{metrics_url} can't be read: {problem}") from None
    models: dict[str, dict[str, int]] = {}
    for family in families:
        if name := _NAMES.get(family.name):
            for sample in family.samples:
                models.setdefault(sample.labels["model"], {})[name] = int(sample.value)
    return models


_FLEET_TIMEOUT_S: Final = 10


def read_fleet(base_url: str, key: str) -> dict[str, dict[str, Any]] | None:
    """Returns the models of `/v1/admin/fleet` by name; None without an answer, or if the key is not an operator's."""
    url = f"{base_url.rstrip('/')}/v1/admin/fleet"
    try:
        answer = httpx2.get(url, headers={"x-key": key}, timeout=_FLEET_TIMEOUT_S, trust_env=False)
        answer.raise_for_status()
        return {model.pop("model"): model for model in answer.json()["models"]}
    except (httpx2.HTTPError, ValueError, KeyError):
        return None


Models: TypeAlias = Mapping[str, Mapping[str, Any]]
MetricsUrl = Annotated[
    str | None,
    typer.Option(
        help="Address of the metrics; by default that of the service on this machine.",
        envvar="GEN_METRICS_URL",
        show_default=False,
    ),
]
MetricsToken = Annotated[
    str, typer.Option(help="The value of metrics.token.", envvar="GEN_METRICS__TOKEN", show_default=False)
]


Watch = Annotated[bool, typer.Option("--watch", help="Refresh every two seconds until Ctrl-C.")]
WindowName = Annotated[
    Literal["5m", "1h", "24h"], typer.Option("--window", help="Period of waits, run times and counts.")
]
_FLEET_COLUMNS: Final = (
    *("model", "queued", "wait now", "wait p50/p95", "run p50/p95"),
    *("per min", "errors", "busy", "replicas", "last error"),
)
_METRICS_COLUMNS: Final = ("model", "queued", "leased", "quarantined")
_REFRESH_S: Final = 2.0


def status(
    as_json: Json = False,
    watch: Watch = False,
    window: WindowName = "5m",
    base_url: BaseUrl = None,
    key: Key = "",
    metrics_url: MetricsUrl = None,
    metrics_token: MetricsToken = "",
) -> None:
    """Show whether the service is ready, and its queues. Exit code 1 if it is not ready.

    With an operator key, or on the service's machine, it also shows the estimated wait, and for a recent period waits,
    run times, throughput, error rate and the share of time in which replicas were busy. Times are in seconds.
    """
    view = _ServiceView(base_url, key, metrics_url, metrics_token)
    if watch:
        _draw(view, window)
        return
    ready, models, missing = view.read()
    if as_json:
        show_json({"base_url": view.url, "ready": ready, "models": models})
    else:
        if ready:
            print(f"{view.url}: ready")
        if models is None:
            say(f"no metrics: {missing}")
        else:
            show(*_table(models, window))
    if not ready:
        raise ServiceError(f"{view.url} is not ready or does not run; gen-serve up starts a service")


class _ServiceView:
    def __init__(self, base_url: str | None, key: str, metrics_url: str | None, metrics_token: str) -> None:
        self.url, service = find_service(base_url)
        self._base_url = base_url
        self._key = key or (_operator_key(service.data_dir) if service else "")
        self._metrics = metrics_url or (service.metrics_url if service else None), metrics_token

    def read(self) -> tuple[bool, Models | None, str]:
        """Returns whether the service is ready, and its models or the reason why they are unknown."""
        with connect_without_key(self._base_url) as client:
            ready = client.ready()
        if ready and self._key and (models := read_fleet(self.url, self._key)) is not None:
            return ready, models, ""
        try:
            return ready, read_queues(*self._metrics), ""
        except MetricsUnavailable as problem:
            return ready, None, str(problem)


def _draw(view: _ServiceView, window: str) -> None:
    console = Console()
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            ready, models, missing = view.read()
            head = f"{view.url}: {'ready' if ready else 'not ready'}"
            body = table(*_table(models, window)) if models else f"no metrics: {missing}"
            live.update(Group(head, body), refresh=True)
            time.sleep(_REFRESH_S)


def _table(models: Models, window: str) -> tuple[Sequence[str], list[Sequence[Cell]]]:
    if all("windows" in model for model in models.values()):
        return _FLEET_COLUMNS, [_row(name, model, model["windows"][window]) for name, model in models.items()]
    return _METRICS_COLUMNS, [(name, *map(model.get, _METRICS_COLUMNS[1:])) for name, model in models.items()]


def _row(name: str, model: Mapping[str, Any], recent: Mapping[str, Any]) -> Sequence[Cell]:
    failures = model["failures"]
    return (
        name,
        model["queued"] + model["quarantined"],
        _round(model["predicted_wait_s"]),
        _pair(recent["wait_p50"], recent["wait_p95"]),
        _pair(recent["run_p50"], recent["run_p95"]),
        _round(recent["per_minute"]),
        _percent(recent["error_rate"]),
        _percent(recent["busy"]),
        _replicas(model),
        model.get("fault") or (f"{moment(failures[0]['at'])} {failures[0]['error']}" if failures else ""),
    )


def _round(value: float | None) -> Cell:
    return None if value is None else round(value, 1)


def _pair(p50: float | None, p95: float | None) -> Cell:
    return None if p50 is None or p95 is None else f"{p50:.1f}/{p95:.1f}"


def _percent(share: float | None) -> Cell:
    return None if share is None else f"{share:.0%}"


def _replicas(model: Mapping[str, Any]) -> str:
    if model["replicas"] is None:
        return "unknown"
    states = ", ".join(f"{count} {state.lower()}" for state, count in model["replicas"].items() if count) or "none"
    if model["target_replicas"] != model["replicas"].get("RUNNING", 0):
        states += f", target {model['target_replicas']}"
    if model["min_replicas"] is not None:
        states += f" ({model['min_replicas']}-{model['max_replicas']})"
    return states


def _operator_key(folder: Path) -> str:
    path = folder / "operator-key"
    return path.read_text().strip() if os.access(path, os.R_OK) else ""
