"""An earlier release is upgraded under load, on nodes, as operators do it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.earlier_release import NotInHistory

from chaos.harm import Harm
from chaos.journal import UPGRADED
from chaos.run import Plan, run


@pytest.mark.slow
@pytest.mark.whole_service
def test_nothing_is_lost_while_an_earlier_release_is_upgraded(tmp_path: Path, repository: Path) -> None:
    plan = Plan(seed=7, seconds=25, tasks=40, faults=(UPGRADED,), on="nodes", upgraded=True)
    try:
        outcome = run(plan, tmp_path, repository, print)
    except NotInHistory as missing:
        pytest.skip(str(missing))
    assert [finding for finding in outcome.findings if not finding.kept] == []
    assert len(outcome.journal.accepted) >= 40
    assert [suffered for suffered in outcome.journal.faults if suffered.recovered_s is None] == []
    assert {name: harm for name, harm in outcome.harm.items() if harm != Harm()} == {}
