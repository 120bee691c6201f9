"""How evenly tenants were served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serve_app.load.outcome import Outcome
from serve_app.load.spread import Spread


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index of fairness: 1 where all have the same, 1/n where one of n has everything. None where nobody has
    anything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None


def figures(outcomes: Sequence[Outcome], weights: Mapping[str, float]) -> dict[str, Any]:
    """By tenant: what was asked, what was served, how long it waited. `jain` is of what was served per weight, counted
    in megapixel-steps where all requests say theirs, else in results. It means something where all tenants asked for
    more than they got: one that asked for little and got it lowers it, too."""
    by_work = all(one.shape.work is not None for one in outcomes)
    tenants = {name: [one for one in outcomes if one.tenant == name] for name in weights}
    served = {name: sum(_amount(one, by_work) for one in ours if one.served) for name, ours in tenants.items()}
    index = jain([served[name] / weight for name, weight in weights.items()]) if len(weights) > 1 else None
    return {
        "jain": None if index is None else round(index, 4),
        "counted_in": "megapixel-steps" if by_work else "results",
        "tenants": {
            name: {
                "weight": weights[name],
                "asked": len(ours),
                "served": sum(one.served for one in ours),
                "refused": sum(one.end == "refused" for one in ours),
                "amount": round(served[name], 4),
                "time_to_result": _spread([one.time_to_result for one in ours]),
                "queue_wait": _spread([_queue_wait(one) for one in ours]),
            }
            for name, ours in tenants.items()
        },
    }


def _amount(outcome: Outcome, by_work: bool) -> float:
    return (outcome.shape.work or 0.0) if by_work else 1.0


def _queue_wait(outcome: Outcome) -> float | None:
    if outcome.started is None or outcome.acknowledged is None:
        return None
    return outcome.started - outcome.acknowledged


def _spread(values: Sequence[float | None]) -> dict[str, float] | None:
    spread = Spread.of([value for value in values if value is not None])
    return spread and spread.as_json()
