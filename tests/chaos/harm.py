"""What each fault did that none may do: tasks lost, done twice, booked wrongly, or ended as Error without cause."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.clients import TERMINAL
from chaos.evidence import Evidence
from chaos.journal import Journal, Seen, Suffered

BEFORE: Final = "none yet"
"""In place of the name of a fault, for what came before the first one."""
_CANCELLED: Final = "Cancelled by the client"
_ENDS: Final = frozenset({"settle", "return"})


@dataclass(slots=True)
class Harm:
    lost: int = 0
    """Accepted tasks that are not there, or never ended."""
    doubled: int = 0
    """Tasks that nobody was told of, or whose price was held or settled more than once."""
    ledger: int = 0
    """Milli-credits by which entries of tasks differ from what these cost."""
    wrong_errors: int = 0
    """Tasks that ended badly though no client cancelled them."""

    def __add__(self, other: Harm) -> Harm:
        return Harm(
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.ledger + other.ledger,
            self.wrong_errors + other.wrong_errors,
        )


def by_fault(journal: Journal, evidence: Evidence) -> dict[str, Harm]:
    """A task counts for the fault that was on, or was the last one, when it ended; a lost one for that when it was
    accepted. Names of all faults are in it, and BEFORE.
    """
    timeline = sorted(journal.faults, key=lambda suffered: suffered.began)
    harm = {BEFORE: Harm()} | {suffered.fault: Harm() for suffered in timeline}
    for task_id, seen in journal.accepted.items():
        if "finished" not in evidence.tasks.get(task_id, ()):
            harm[_on(timeline, seen.accepted)].lost += 1
    counts, amounts = _booked(evidence)
    for task_id, row in evidence.tasks.items():
        if "finished" in row:
            suffered = harm[_on(timeline, int(row["finished"]) / 1000)]
            suffered.doubled += task_id not in journal.accepted or max(counts[task_id].values(), default=0) > 1
            suffered.ledger += abs(amounts[task_id] + int(row.get("cost", 0)))
            suffered.wrong_errors += ended_wrongly(row, journal.accepted.get(task_id))
    return harm


def _on(timeline: Sequence[Suffered], at: float) -> str:
    after = bisect_right(timeline, at, key=lambda suffered: suffered.began)
    return timeline[after - 1].fault if after else BEFORE


def _booked(evidence: Evidence) -> tuple[Mapping[str, Counter[str]], Counter[str]]:
    """By task: how many entries hold its price, how many end that, and the sum of their amounts."""
    counts: dict[str, Counter[str]] = {task_id: Counter() for task_id in evidence.tasks}
    amounts: Counter[str] = Counter()
    for entry in evidence.ledger:
        if "task" in entry:
            counts.setdefault(entry["task"], Counter())["end" if entry["kind"] in _ENDS else entry["kind"]] += 1
            amounts[entry["task"]] += int(entry["amount"])
    return counts, amounts


def ended_wrongly(row: Mapping[str, str], seen: Seen | None) -> bool:
    """Whether the task ended as anything but Ready for another reason than that its client cancelled it."""
    asked_for = seen is not None and seen.cancelled and _CANCELLED in row.get("details", "")
    return row["status"] in TERMINAL and row["status"] != "Ready" and not asked_for
