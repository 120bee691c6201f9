"""Checks the metrics and labels in PromQL expressions of dashboards and alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from serve_app.metrics.series import ALL

_SCRAPED: Final = {name: series for series in ALL for name in series.samples}
_BUILTIN_METRICS: Final = {"up"}
_TARGET_LABELS: Final = {"job", "instance"}
"""Labels that Prometheus adds."""
_WORDS: Final = {"and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"}
_ADDED_LABELS: Final = re.compile(r'label_(?:replace|join)\b.*?,\s*"(\w+)"\s*,')
_TEXT: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\[[^\]]*\]")
_LABELS: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_NAME: Final = re.compile(r"(?<![\w:.])([a-zA-Z_:][\w:]*)\s*(\(|\{[^}]*\})?")


def find_faults(expression: str) -> Iterator[str]:
    """Yields a message for each metric and label that the service does not export."""
    labels = _TARGET_LABELS | set(_ADDED_LABELS.findall(expression))
    text = _TEXT.sub("", expression)
    grouped = {name for names in _LABELS.findall(text) for name in re.findall(r"\w+", names)}
    candidates = [(name, after) for name, after in _NAME.findall(_LABELS.sub("", text)) if after != "("]
    metrics = [(name, set(re.findall(r"(\w+)\s*[=!]", after))) for name, after in candidates if name not in _WORDS]
    for metric, matched in metrics:
        if series := _SCRAPED.get(metric):
            labels |= series.sample_labels
            yield from (f"{metric} has no {name}" for name in matched - series.sample_labels - _TARGET_LABELS)
        elif metric not in _BUILTIN_METRICS:
            yield f"there is no {metric}"
    if not metrics:
        yield "it has no metric"
    yield from (f"none of {', '.join(name for name, _ in metrics)} has {name}" for name in grouped - labels)
