"""A short run of what `make chaos-cluster` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.harm import Harm
from chaos.journal import DEPLOYED
from chaos.run import Plan, run

FAULTS = ("kill a worker node", "drain a worker node", "kill the head node", DEPLOYED)


@pytest.mark.slow
@pytest.mark.whole_service
def test_promises_are_kept_on_nodes_that_come_and_go(tmp_path: Path, repository: Path) -> None:
    plan = Plan(seed=7, seconds=30, tasks=60, faults=FAULTS, on="nodes")
    outcome = run(plan, tmp_path, repository, print)
    assert [finding for finding in outcome.findings if not finding.kept] == []
    assert len(outcome.journal.accepted) >= 60
    assert [suffered for suffered in outcome.journal.faults if suffered.recovered_s is None] == []
    assert {suffered.fault for suffered in outcome.journal.faults} == set(FAULTS)
    assert {name: harm for name, harm in outcome.harm.items() if harm != Harm()} == {}
