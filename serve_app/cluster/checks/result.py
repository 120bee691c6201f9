"""Results of preflight checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self


class Verdict(StrEnum):
    FINE = "fine"
    WARNING = "warning"
    """The service works, but worse or less safely than it could."""
    REFUSED = "refused"
    """Tasks could be lost, or nothing would work."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    what: str
    """Name of the check."""
    where: str
    """Node or process that was checked, or the settings."""
    verdict: Verdict
    message: str
    remedy: str = ""

    @classmethod
    def fine(cls, what: str, message: str) -> Self:
        return cls(what, "", Verdict.FINE, message)

    @classmethod
    def warning(cls, what: str, message: str, remedy: str) -> Self:
        return cls(what, "", Verdict.WARNING, message, remedy)

    @classmethod
    def refused(cls, what: str, message: str, remedy: str) -> Self:
        return cls(what, "", Verdict.REFUSED, message, remedy)


def add_place(where: str, results: Iterable[CheckResult]) -> list[CheckResult]:
    return [replace(each, where=where) for each in results]


def merge_places(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Returns equal results of several places as one, in the order of their first place."""
    places: dict[CheckResult, list[str]] = {}
    for each in results:
        places.setdefault(replace(each, where=""), []).append(each.where)
    return [
        replace(each, where=where[0] if len(where) == 1 else f"{len(where)} places: {', '.join(where)}")
        for each, where in places.items()
    ]
