"""A short run of what `make attack` does at length, against the service's HTTP interface alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_service import Service, running

from attack.corpus import samples
from attack.families import FAMILIES, json_bodies
from attack.run import Plan, run
from attack.stage import SETTINGS, staged
from serve_app.accounts.roles import Role
from serve_app.config.settings import Settings

COUNTS = {"permissions": 100, "urls": 200, "json": 120, "pictures": 18, "videos": 13, "slow": 50, "tenants": 130}
"""By family; what is made of the description is tried by tests/api/test_schemathesis.py."""


@pytest.fixture(scope="module")
def attacked(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings: dict[str, Any] = Settings.model_validate(SETTINGS).model_dump(include=set(SETTINGS))
    with running(tmp_path_factory.mktemp("attacked"), redis_url, repository, **settings) as service:
        yield service


@pytest.fixture(scope="module")
def operator(attacked: Service) -> str:
    return attacked.worker.new_key("attackers", Role.OPERATOR)


@pytest.mark.slow
def test_what_mutations_begin_with_is_real(attacked: Service, operator: str) -> None:
    async def answers() -> dict[str, int]:
        async with staged(attacked.base_url, operator, proxied=False) as stage:
            shots = {sample.name: json_bodies.unchanged(sample) for sample in samples()}
            outcomes = {name: await shot.run(stage) for name, shot in shots.items()}
        return {name: int(status) for name, outcome in outcomes.items() for status in outcome.statuses}

    assert asyncio.run(answers()) == {sample.name: sample.status for sample in samples()}


@pytest.mark.slow
@pytest.mark.parametrize("family", COUNTS)
def test_no_attack_succeeds(attacked: Service, operator: str, repository: Path, tmp_path: Path, family: str) -> None:
    count = COUNTS[family]
    plan = Plan(count=count, families=(family,), idle_s=0.5, corpus=tmp_path / "failed.jsonl")
    report = run(plan, attacked.base_url, operator, tmp_path, repository, print, proxied=False)
    assert [failure.shown for failure in report.failed] == []
    # What the bystander suffers says little where other tests run beside it.
    assert report.families[family].tried >= count / 2


def test_no_family_is_left_out() -> None:
    assert {*COUNTS, "schema"} == set(FAMILIES)


@pytest.mark.slow
def test_a_guard_that_lets_through_is_noticed(redis_url: str, repository: Path, tmp_path: Path) -> None:
    settings = Settings.model_validate({**SETTINGS, "network": {"allow": ["127.0.0.0/8"]}})
    with running(tmp_path / "open", redis_url, repository, network=settings.network, tasks=settings.tasks) as service:
        operator = service.worker.new_key("attackers", Role.OPERATOR)
        plan = Plan(count=150, families=("urls",), idle_s=0, corpus=tmp_path / "failed.jsonl")
        report = run(plan, service.base_url, operator, tmp_path, repository, print, proxied=False)
        reached = [failure for failure in report.failed if any("reached where" in why for why in failure.wrong)]
        assert reached
        again = Plan(families=("urls",), idle_s=0, corpus=plan.corpus, only_corpus=True)
        repeated = run(again, service.base_url, operator, tmp_path, repository, print, proxied=False)
        assert {failure.name for failure in repeated.failed} >= {failure.name for failure in reached}
        assert repeated.families["urls"].tried == len(report.failed)
