"""A short run of what `make chaos` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.harm import Harm
from chaos.run import Plan, run

FAULTS = (
    "kill a model replica",
    "kill a dispatcher",
    "kill an ingress replica",
    "kill the moderator",
    "kill the webhook sender",
    "kill the Redis server",
    "freeze a dispatcher",
    "fill the Redis server",
)


@pytest.mark.slow
@pytest.mark.whole_service
def test_promises_are_kept_under_faults(tmp_path: Path, repository: Path) -> None:
    outcome = run(Plan(seed=7, seconds=40, tasks=150, faults=FAULTS), tmp_path, repository, print)
    broken = [finding for finding in outcome.findings if not finding.kept]
    assert not broken
    assert len(outcome.journal.accepted) >= 150
    assert [suffered for suffered in outcome.journal.faults if suffered.recovered_s is None] == []
    assert {suffered.fault for suffered in outcome.journal.faults} == set(FAULTS)
    assert {name: harm for name, harm in outcome.harm.items() if harm != Harm()} == {}
    assert outcome.journal.backlog > 0
