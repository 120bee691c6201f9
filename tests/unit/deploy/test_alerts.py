"""The alert rules ask for series that there are, tell what to do, and fire when they should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.promtool import promtool
from support.series import faults

FOLDER = Path(__file__).parents[3] / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_every_series_and_label_is_declared(rule: dict[str, Any]) -> None:
    assert list(faults(rule["expr"])) == []


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_says_what_is_wrong_and_where_it_is_told_what_to_do(rule: dict[str, Any], repository: Path) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    document, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (\w+)$", (repository / document).read_text(), re.MULTILINE)
    assert rule["alert"] in headings
    assert anchor == rule["alert"].lower()


def test_no_runbook_is_of_an_alert_that_there_is_not(repository: Path) -> None:
    headings = re.findall(r"^## (\w+)$", (repository / "docs/alerts.md").read_text(), re.MULTILINE)
    assert headings == NAMES


def test_each_alert_is_tried_firing_and_at_rest() -> None:
    tried = [each for test in _tests() for each in test["alert_rule_test"]]
    assert {each["alertname"] for each in tried if each["exp_alerts"]} == set(NAMES)
    assert {each["alertname"] for each in tried if not each["exp_alerts"]} == set(NAMES)


def test_what_the_tests_feed_is_declared() -> None:
    fed = {each["series"] for test in _tests() for each in test["input_series"]}
    assert [fault for series in sorted(fed) for fault in faults(series)] == []


def test_alerts_fire_when_they_should() -> None:
    promtool("check", "rules", str(FOLDER / "alerts.yaml"))
    assert "SUCCESS" in promtool("test", "rules", str(FOLDER / "alerts_test.yaml"))


def _tests() -> list[dict[str, Any]]:
    return yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
