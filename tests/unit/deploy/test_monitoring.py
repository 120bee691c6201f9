"""The dashboards ask for series that there are, and are what their descriptions make of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.promtool import promtool
from support.series import faults

from deploy.grafana.dashboards import DASHBOARDS, FOLDER, to_json

FILES = sorted(FOLDER.glob("*.json"))


def load_dashboard(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def panels(path: Path) -> list[Mapping[str, Any]]:
    return [panel for panel in load_dashboard(path)["panels"] if panel["type"] != "row"]


def expressions(path: Path) -> Iterator[str]:
    for panel in panels(path):
        yield from (target["expr"] for target in panel["targets"])


def plain(expression: str) -> str:
    """As it is once Grafana has put in what was chosen."""
    for name, value in (("$__rate_interval", "5m"), ("$__range", "6h"), ("$model", ".*"), ("$project", ".*")):
        expression = expression.replace(name, value)
    assert "$" not in expression, "a variable that nobody chooses"
    return expression


def test_the_files_are_those_described() -> None:
    assert {path.stem for path in FILES} == {"fleet", "model", "tenant", "money"}
    for dashboard in DASHBOARDS:
        is_new = to_json(dashboard) == (FOLDER / f"{dashboard.name}.json").read_text()
        assert is_new, "write them anew: make figures"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_series_and_label_is_declared(path: Path) -> None:
    for expression in expressions(path):
        assert list(faults(plain(expression))) == [], expression
    for variable in load_dashboard(path)["templating"]["list"][1:]:
        series, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        assert list(faults(f"sum by ({label}) ({series})")) == []
        assert variable["name"] == label


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_grafana_can_load_it(path: Path) -> None:
    """What Grafana 11 asks of a file that is imported or provisioned."""
    dashboard = load_dashboard(path)
    assert dashboard["schemaVersion"] >= 39
    assert dashboard["uid"] == f"gen-serve-{path.stem}"
    assert "id" not in dashboard, "it is the instance's to give"
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
    all_of_them = [plain(expression) for path in FILES for expression in expressions(path)]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(all_of_them)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(all_of_them)} rules found" in promtool("check", "rules", str(file))


ALERTS = Path(__file__).parents[3] / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ALERTS / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_alerts_ask_for_series_that_are_declared(rule: dict[str, Any]) -> None:
    assert list(faults(rule["expr"])) == []


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_says_what_is_wrong_and_where_it_is_told_what_to_do(rule: dict[str, Any], repository: Path) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    document, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (repository / document).read_text(), re.MULTILINE)
    assert rule["alert"] in headings
    assert anchor == rule["alert"].lower()


def test_no_runbook_is_of_an_alert_that_there_is_not(repository: Path) -> None:
    headings = re.findall(r"^### (GenServe\w+)$", (repository / "docs/operations.md").read_text(), re.MULTILINE)
    assert headings == NAMES


def test_each_alert_is_tried_firing_and_at_rest() -> None:
    tried = [each for test in _tests() for each in test["alert_rule_test"]]
    assert {each["alertname"] for each in tried if each["exp_alerts"]} == set(NAMES)
    assert {each["alertname"] for each in tried if not each["exp_alerts"]} == set(NAMES)


def test_what_the_tests_feed_is_declared() -> None:
    fed = {each["series"] for test in _tests() for each in test["input_series"]}
    assert [fault for series in sorted(fed) for fault in faults(series)] == []


def test_alerts_fire_when_they_should() -> None:
    promtool("check", "rules", str(ALERTS / "alerts.yaml"))
    assert "SUCCESS" in promtool("test", "rules", str(ALERTS / "alerts_test.yaml"))


def _tests() -> list[dict[str, Any]]:
    return yaml.safe_load((ALERTS / "alerts_test.yaml").read_text())["tests"]
