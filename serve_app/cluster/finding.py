"""Findings of the preflight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    FINE = "fine"
    WARNING = "warning"
    """It serves, but worse, or less safely, than it could."""
    REFUSED = "refused"
    """Tasks could be lost, or nothing would work at all."""


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    where: str
    verdict: Verdict
    message: str
    remedy: str = ""
    """What to do about it."""


def fine(what: str, where: str, message: str) -> Finding:
    return Finding(what, where, Verdict.FINE, message)


def warning(what: str, where: str, message: str, remedy: str) -> Finding:
    return Finding(what, where, Verdict.WARNING, message, remedy)


def refusal(what: str, where: str, message: str, remedy: str) -> Finding:
    return Finding(what, where, Verdict.REFUSED, message, remedy)


def together(findings: Iterable[Finding]) -> list[Finding]:
    """The same of several places as one, in the order of what was looked at."""
    places: dict[Finding, list[str]] = {}
    for each in findings:
        alike = Finding(each.what, "", each.verdict, each.message, each.remedy)
        places.setdefault(alike, []).append(each.where)
    return [
        Finding(each.what, where[0] if len(where) == 1 else f"{len(where)} places: {', '.join(where)}", *_rest(each))
        for each, where in places.items()
    ]


def _rest(finding: Finding) -> tuple[Verdict, str, str]:
    return finding.verdict, finding.message, finding.remedy
