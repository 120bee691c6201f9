"""What `/metrics` says of a service's queues."""

from __future__ import annotations

import httpx2
from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT_S = 5

_NAMES = {
    "gen_tasks_queued": "queued",
    "gen_tasks_leased": "leased",
    "gen_tasks_suspects": "suspects",
}


class NoFigures(Exception):
    """Why there are none, fit for a person."""


def read(metrics_url: str | None, token: str = "") -> dict[str, dict[str, int]]:
    """By lane: `queued`, `leased` and `suspects`. Raises NoFigures."""
    if metrics_url is None:
        raise NoFigures("they are on the machine of the service; name their address with --metrics-url")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx2.get(metrics_url, headers=headers, timeout=_TIMEOUT_S, trust_env=False)
        if answer.status_code == 401:
            raise NoFigures(f"{metrics_url} asks for metrics.token; pass it with --metrics-token")
        answer.raise_for_status()
        families = list(text_string_to_metric_families(answer.text))
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as problem:
        raise NoFigures(f"{metrics_url} can't be read: {problem}") from None
    lanes: dict[str, dict[str, int]] = {}
    for family in families:
        if name := _NAMES.get(family.name):
            for sample in family.samples:
                lanes.setdefault(sample.labels["lane"], {})[name] = int(sample.value)
    return lanes
