"""Short runs of what `make chaos` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.faults import FAULTS
from chaos.harm import Harm
from chaos.run import Plan, run

KILLS = tuple(name for name in FAULTS if name.startswith("kill "))
TASKS = 100
UPGRADE = "redeploy, scaled up"
OTHERS = ("freeze a dispatcher", "freeze a model replica", "fill the Redis server", "break a model's device")


@pytest.mark.whole_service
@pytest.mark.parametrize(
    "faults", [(*KILLS, UPGRADE), pytest.param(OTHERS, marks=pytest.mark.slow)], ids=["kills", "others"]
)
def test_promises_are_kept_under_faults(tmp_path: Path, repository: Path, faults: tuple[str, ...]) -> None:
    outcome = run(Plan(seed=7, seconds=25, tasks=TASKS, faults=faults), tmp_path, repository, print)
    assert [finding for finding in outcome.findings if not finding.kept] == []
    assert len(outcome.journal.accepted) >= TASKS
    assert [suffered for suffered in outcome.journal.faults if suffered.recovered_s is None] == []
    assert {suffered.fault for suffered in outcome.journal.faults} == set(faults)
    assert {name: harm for name, harm in outcome.harm.items() if harm != Harm()} == {}
    assert outcome.journal.backlog > 0
