"""Whether the generator was the limit, and not the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from serve_app.load.generator import Strain
from serve_app.load.outcome import Outcome
from serve_app.load.spread import Spread

_LATE_S: Final = 0.05
_BUSY: Final = 0.9


def figures(outcomes: Sequence[Outcome], strains: Sequence[Strain]) -> dict[str, Any]:
    """How late requests were sent and how late event loops woke, seconds; each process's share of one core; and
    `limits`, in sentences: none says that the figures are the server's."""
    late = Spread.of([max(0.0, one.sent - one.intended) for one in outcomes if one.sent is not None])
    lags = [Spread.of(strain.loop_lag) for strain in strains]
    worst = max((lag.p99 for lag in lags if lag), default=None)
    return {
        "lateness": late and late.as_json(),
        "cpu": [round(strain.cpu, 3) for strain in strains],
        "loop_lag_p99": None if worst is None else round(worst, 4),
        "limits": _limits(late, strains, worst),
    }


def _limits(late: Spread | None, strains: Sequence[Strain], lag: float | None) -> list[str]:
    found: list[str] = []
    if late and late.p99 > _LATE_S:
        found.append(f"1 of 100 requests was sent {late.p99:.3f} s late or later ({_LATE_S:g} s are borne)")
    if busy := [strain.cpu for strain in strains if strain.cpu > _BUSY]:
        found.append(f"{len(busy)} of {len(strains)} generator processes used {max(busy):.0%} of a core")
    if lag is not None and lag > _LATE_S:
        found.append(f"1 of 100 looks at the event loop found it {lag:.3f} s late or later ({_LATE_S:g} s are borne)")
    return found
