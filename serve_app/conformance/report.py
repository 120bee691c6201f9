"""What came of a run, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from serve_app.conformance.check import Check, Outcome, Verdict

COLUMNS = ("section", "holds", "fails", "skipped")


def rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str, str, str]]:
    """A row for every topic, in their order, and one for all."""
    topics = dict.fromkeys(outcome.check.topic for outcome in outcomes)
    for topic in (*topics, None):
        found = Counter(each.verdict for each in outcomes if topic in (None, each.check.topic))
        counts = [str(found[verdict]) for verdict in (Verdict.HOLDS, Verdict.FAILS, Verdict.SKIPPED)]
        yield (topic or "all", counts[0], counts[1], counts[2])


def summary(outcomes: Sequence[Outcome]) -> str:
    found = Counter(each.verdict for each in outcomes)
    holds, fails, skipped = (found[verdict] for verdict in (Verdict.HOLDS, Verdict.FAILS, Verdict.SKIPPED))
    return f"{holds} of {len(outcomes)} sentences hold, {fails} do not, {skipped} were skipped"


def failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Every sentence that does not hold, with what was sent, received and expected."""
    for each in outcomes:
        if each.verdict is Verdict.FAILS:
            yield f"\nFAILS {each.check.section}: {each.check.sentence}"
            yield f"  expected  {each.reason}"
            if each.sent:
                yield f"  sent      {each.sent}"
                yield f"  received  {each.received}"


def skips(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Why sentences were skipped, and how many for each reason."""
    reasons = Counter(each.reason for each in outcomes if each.verdict is Verdict.SKIPPED)
    for reason, count in reasons.most_common():
        yield f"skipped {count}: {reason}"


def listed(checks: Sequence[Check]) -> Iterator[tuple[str, str, str, str]]:
    """Topic, about what it costs, section and sentence of each."""
    for check in checks:
        yield check.topic, f"{check.credits:g}", check.section, check.sentence


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    counts = Counter(each.verdict.value for each in outcomes)
    return {
        "counts": {verdict.value: counts[verdict.value] for verdict in Verdict},
        "checks": [
            {
                "topic": each.check.topic,
                "section": each.check.section,
                "sentence": each.check.sentence,
                "decided": each.check.decided,
                "verdict": each.verdict.value,
                "reason": each.reason or None,
                "sent": each.sent or None,
                "received": each.received or None,
            }
            for each in outcomes
        ],
    }
