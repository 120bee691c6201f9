"""A short run of what `make attack` does at length, against the service's HTTP interface alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_service import Service, running

from attack.families import FAMILIES
from attack.run import Plan, run
from attack.stage import SETTINGS
from serve_app.accounts.roles import Role
from serve_app.config.settings import Settings


@pytest.fixture(scope="module")
def attacked(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings: dict[str, Any] = Settings.model_validate(SETTINGS).model_dump(include=set(SETTINGS))
    with running(tmp_path_factory.mktemp("attacked"), redis_url, repository, **settings) as service:
        yield service


@pytest.fixture(scope="module")
def operator(attacked: Service) -> str:
    return attacked.worker.new_key("attackers", Role.OPERATOR)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "count"),
    {
        "permissions": 150,
        "urls": 80,
        "schema": 250,
        "json": 180,
        "pictures": 36,
        "videos": 26,
        "slow": 50,
        "tenants": 300,
    }.items(),
)
def test_no_attack_succeeds(
    attacked: Service, operator: str, repository: Path, tmp_path: Path, family: str, count: int
) -> None:
    plan = Plan(count=count, families=(family,), idle_s=0.5, corpus=tmp_path / "failed.jsonl")
    report = run(plan, attacked.base_url, operator, tmp_path, repository, print, proxied=False)
    assert [failure.shown for failure in report.failed] == []
    suffered = report.families[family]
    assert suffered.tried >= count / 2
    assert suffered.delays.requests, "the bystander was there"
    assert suffered.delays.troubles == []


def test_every_family_has_its_short_run() -> None:
    (parameters,) = [mark for mark in test_no_attack_succeeds.pytestmark if mark.name == "parametrize"]
    assert [family for family, _ in parameters.args[1]] == list(FAMILIES)
