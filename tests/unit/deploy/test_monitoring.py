"""Dashboards and alerts: Grafana and Prometheus accept them, and all series and labels are declared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.promql import find_faults
from support.promtool import promtool

DEPLOY = Path(__file__).parents[3] / "deploy"
FILES = [DEPLOY / "grafana" / f"{name}.json" for name in ("fleet", "model", "money", "tenant")]


def load_dashboard(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def panels(path: Path) -> list[Mapping[str, Any]]:
    return [panel for panel in load_dashboard(path)["panels"] if panel["type"] != "row"]


def expressions(path: Path) -> Iterator[str]:
    for panel in panels(path):
        yield from (target["expr"] for target in panel["targets"])


def fill_in_variables(expression: str) -> str:
    for name, value in (("$__rate_interval", "5m"), ("$__range", "6h"), ("$model", ".*"), ("$project", ".*")):
        expression = expression.replace(name, value)
    assert "$" not in expression, "an unknown variable"
    return expression


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_series_and_label_is_declared(path: Path) -> None:
    for expression in expressions(path):
        assert list(find_faults(fill_in_variables(expression))) == [], expression
    for variable in load_dashboard(path)["templating"]["list"][1:]:
        series, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        assert list(find_faults(f"sum by ({label}) ({series})")) == []
        assert variable["name"] == label


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_dashboard_has_what_grafana_11_needs(path: Path) -> None:
    dashboard = load_dashboard(path)
    assert dashboard["schemaVersion"] >= 39
    assert dashboard["uid"] == f"gen-serve-{path.stem}"
    assert "id" not in dashboard, "the instance assigns it"
    first, *others = dashboard["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(part["datasource"] == source for part in (*others, *panels(path)))
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard["panels"]:
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(letters) == len(set(letters))


def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    queries = [fill_in_variables(expression) for path in FILES for expression in expressions(path)]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(queries)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", str(file))


ALERTS = DEPLOY / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ALERTS / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_alert_has_declared_series_severity_and_a_runbook(rule: dict[str, Any]) -> None:
    assert list(find_faults(rule["expr"])) == []
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_runbooks_are_those_of_the_alerts(repository: Path) -> None:
    headings = re.findall(r"^### (GenServe\w+)$", (repository / "docs/operations.md").read_text(), re.MULTILINE)
    assert headings == NAMES


def test_each_alert_is_tested_firing_and_silent() -> None:
    tried = [each for test in _tests() for each in test["alert_rule_test"]]
    assert {each["alertname"] for each in tried if each["exp_alerts"]} == set(NAMES)
    assert {each["alertname"] for each in tried if not each["exp_alerts"]} == set(NAMES)


def test_input_series_of_alert_tests_are_declared() -> None:
    fed = {each["series"] for test in _tests() for each in test["input_series"]}
    assert [fault for series in sorted(fed) for fault in find_faults(series)] == []


def test_alerts_fire_when_they_should() -> None:
    promtool("check", "rules", str(ALERTS / "alerts.yaml"))
    assert "SUCCESS" in promtool("test", "rules", str(ALERTS / "alerts_test.yaml"))


def _tests() -> list[dict[str, Any]]:
    return yaml.safe_load((ALERTS / "alerts_test.yaml").read_text())["tests"]
