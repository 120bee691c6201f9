"""How a check says that its sentence does not hold, or that this can't be seen."""

from __future__ import annotations


class Broken(Exception):
    """The sentence does not hold. The text says what was expected."""


class Skipped(Exception):
    """Whether the sentence holds can't be seen here. The text says why."""


def expect(holds: bool, expected: str) -> None:
    """Raises Broken."""
    if not holds:
        raise Broken(expected)
