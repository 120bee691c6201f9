"""Whatever goes wrong is found, and counted for the fault that was on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.evidence import Evidence
from chaos.harm import BEFORE, Harm, by_fault
from chaos.journal import Journal, Seen, Suffered

PRICE = 10
HOLD, SETTLE, RETURN = (
    {"task": "t", "kind": kind, "amount": str(amount)}
    for kind, amount in (("hold", -PRICE), ("settle", 0), ("return", PRICE))
)
READY = {"status": "Ready", "created": "149000", "finished": "150000", "cost": str(PRICE)}
ERROR = {"status": "Error", "created": "149000", "finished": "150000", "details": '{"error":"No model took it"}'}
CANCELLED = {**ERROR, "details": '{"error":"Cancelled by the client"}'}
SEEN = Seen("t", "gen-3-image-klein", accepted=149.0)


def journal(*seen: Seen) -> Journal:
    """The kill begins at 100, the freeze at 200."""
    faults = [Suffered("freeze", 200.0, 1.0), Suffered("kill", 100.0, 1.0)]
    return Journal(accepted={one.id: one for one in seen}, faults=faults)


@pytest.mark.parametrize(
    ("seen", "row", "ledger", "harm"),
    [
        (SEEN, READY, [HOLD, SETTLE], Harm()),
        (SEEN, None, [HOLD], Harm(lost=1)),
        (SEEN, {"status": "Generating", "created": "149000"}, [HOLD], Harm(lost=1)),
        (None, READY, [HOLD, SETTLE], Harm(doubled=1)),
        (SEEN, READY, [HOLD, SETTLE, SETTLE], Harm(doubled=1)),
        (SEEN, READY, [HOLD, HOLD, SETTLE], Harm(doubled=1, ledger=PRICE)),
        (SEEN, READY, [HOLD, SETTLE, RETURN], Harm(doubled=1, ledger=PRICE)),
        (SEEN, READY, [], Harm(ledger=PRICE)),
        (SEEN, ERROR, [HOLD, RETURN], Harm(wrong_errors=1)),
        (SEEN, ERROR, [HOLD], Harm(ledger=PRICE, wrong_errors=1)),
        (replace(SEEN, cancelled=True), CANCELLED, [HOLD, RETURN], Harm()),
        (replace(SEEN, cancelled=True), ERROR, [HOLD, RETURN], Harm(wrong_errors=1)),
        (SEEN, CANCELLED, [HOLD, RETURN], Harm(wrong_errors=1)),
    ],
)
def test_harm_is_found(seen: Seen | None, row: dict[str, str] | None, ledger: list[dict[str, str]], harm: Harm) -> None:
    tasks = {} if row is None else {"t": {"id": "t", **row}}
    found = by_fault(journal(*filter(None, (seen,))), Evidence(tasks, ledger))
    assert found == {BEFORE: Harm(), "kill": harm, "freeze": Harm()}


@pytest.mark.parametrize(("finished", "fault"), [(99, BEFORE), (100, "kill"), (199, "kill"), (250, "freeze")])
def test_it_counts_for_the_last_fault_that_began_before_the_end(finished: int, fault: str) -> None:
    row = {**ERROR, "finished": str(finished * 1000)}
    found = by_fault(journal(SEEN), Evidence({"t": {"id": "t", **row}}, [HOLD, RETURN]))
    assert {name for name, harm in found.items() if harm.wrong_errors} == {fault}
