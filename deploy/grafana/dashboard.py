"""A dashboard as Grafana 11 reads it, from its rows of panels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

_SCHEMA: Final = 39
"""Of Grafana 11.0; later ones read it, too."""
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_STAT_HEIGHT: Final = 4
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`unit` is one of Grafana's. `about` is shown beside the title."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str = ""
    stacked: bool = False
    kind: str = "timeseries"

    @property
    def height(self) -> int:
        return _STAT_HEIGHT if self.kind == "stat" else _HEIGHT


@dataclass(frozen=True, slots=True)
class Row:
    """Its panels share the width, side by side."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """Chosen at the top: values of a label of a series, several or all of them."""

    label: str
    series: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    title: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def panels(self) -> Iterator[Panel]:
        return (panel for row in self.rows for panel in row.panels)

    def model(self) -> dict[str, Any]:
        """What stands in its file."""
        return {
            "uid": f"gen-serve-{self.name}",
            "title": self.title,
            "tags": ["gen-serve"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "utc",
            "templating": {"list": [_datasource(), *map(_variable, self.variables)]},
            "links": [
                {
                    "type": "dashboards",
                    "title": "gen-serve",
                    "tags": ["gen-serve"],
                    "asDropdown": True,
                    "keepTime": True,
                }
            ],
            "panels": list(_layout(self.rows)),
        }


def timeseries(title: str, unit: str, *queries: tuple[str, str], about: str = "", stacked: bool = False) -> Panel:
    return Panel(title, unit, tuple(Query(*query) for query in queries), about, stacked)


def stat(title: str, unit: str, expr: str, about: str = "") -> Panel:
    """One number, the latest."""
    return Panel(title, unit, (Query(expr),), about, kind="stat")


def table(title: str, unit: str, expr: str, about: str = "") -> Panel:
    """The latest of each series, by its labels."""
    return Panel(title, unit, (Query(expr),), about, kind="table")


def _layout(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1},
        }
        top += 1
        width = _COLUMNS // len(row.panels)
        for place, panel in enumerate(row.panels):
            number += 1
            position = {"x": place * width, "y": top, "w": width, "h": panel.height}
            yield {"id": number, "gridPos": position, **_panel(panel)}
        top += max(panel.height for panel in row.panels)


def _panel(panel: Panel) -> dict[str, Any]:
    at_once = panel.kind != "timeseries"
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": at_once,
            "range": not at_once,
            **({"format": "table"} if panel.kind == "table" else {}),
        }
        for place, query in enumerate(panel.queries)
    ]
    lines = {"fillOpacity": 20 if panel.stacked else 0, "stacking": {"mode": "normal" if panel.stacked else "none"}}
    custom = {"custom": lines} if panel.kind == "timeseries" else {}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **custom}, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": targets,
        **({"transformations": [_WITHOUT_TIME]} if panel.kind == "table" else {}),
    }


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "graphMode": "none"},
    "table": {"showHeader": True, "sortBy": [{"displayName": "Value", "desc": True}]},
}
_WITHOUT_TIME: Final = {"id": "organize", "options": {"excludeByName": {"Time": True}}}


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.series}, {variable.label})"
    return {
        "name": variable.label,
        "label": variable.label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "Variable"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }
