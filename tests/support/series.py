"""Whether what dashboards and alerts ask for is declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serve_app.metrics.series import ALL
from support.promql import asked

SCRAPED: Final = {name: series for series in ALL for name in series.samples}
_OF_PROMETHEUS: Final = {"up"}
_OF_ANY: Final = {"job", "instance"}
"""Labels that Prometheus adds."""


def faults(expression: str) -> Iterator[str]:
    """What is wrong with its names and labels."""
    found = asked(expression)
    known = _OF_ANY | found.made
    for metric, matched in found.metrics.items():
        if metric in _OF_PROMETHEUS:
            continue
        if metric not in SCRAPED:
            yield f"there is no {metric}"
            continue
        known |= SCRAPED[metric].sample_labels
        yield from (f"{metric} has no {name}" for name in matched - SCRAPED[metric].sample_labels - _OF_ANY)
    yield from (f"none of {', '.join(found.metrics)} has {name}" for name in found.labels - known)
    if not found.metrics:
        yield "it asks for nothing"
