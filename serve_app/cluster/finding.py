"""What a look at one thing found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    FINE = "fine"
    UNUSUAL = "warning"
    """It serves, but worse, or less safely, than it could."""
    REFUSED = "refused"
    """Tasks could be lost, or nothing would work at all."""


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    where: str
    verdict: Verdict
    told: str
    mend: str = ""
    """What to do about it."""


def fine(what: str, where: str, told: str) -> Finding:
    return Finding(what, where, Verdict.FINE, told)


def unusual(what: str, where: str, told: str, mend: str) -> Finding:
    return Finding(what, where, Verdict.UNUSUAL, told, mend)


def refused(what: str, where: str, told: str, mend: str) -> Finding:
    return Finding(what, where, Verdict.REFUSED, told, mend)


def together(findings: Iterable[Finding]) -> list[Finding]:
    """The same of several places as one, in the order of what was looked at."""
    places: dict[Finding, list[str]] = {}
    for each in findings:
        alike = Finding(each.what, "", each.verdict, each.told, each.mend)
        places.setdefault(alike, []).append(each.where)
    return [
        Finding(each.what, where[0] if len(where) == 1 else f"{len(where)} places: {', '.join(where)}", *_rest(each))
        for each, where in places.items()
    ]


def _rest(finding: Finding) -> tuple[Verdict, str, str]:
    return finding.verdict, finding.told, finding.mend
