"""Outcomes of a load, made up."""

from __future__ import annotations

from typing import Any

from serve_app.load.outcome import Outcome
from serve_app.load.shape import Shape, Size

SMALL = Shape(Size(1000, 500), steps=4)
"""Two megapixel-steps."""


def served(intended: float, took: float, tenant: str = "all", shape: Shape = SMALL, **changes: Any) -> Outcome:
    """Sent and acknowledged in 0.1 s, begun after another 0.2, seen 0.1 after its end."""
    outcome = Outcome(
        number=0,
        endpoint="gen-any",
        shape=shape,
        tenant=tenant,
        intended=intended,
        sent=intended,
        acknowledged=intended + 0.1,
        started=intended + 0.3,
        ended=intended + took - 0.1,
        final=intended + took,
        end="served",
        polls=3,
    )
    for name, value in changes.items():
        setattr(outcome, name, value)
    return outcome


def unserved(intended: float, end: Any, reason: str, tenant: str = "all", **changes: Any) -> Outcome:
    outcome = Outcome(0, "gen-any", SMALL, tenant, intended, sent=intended, end=end, reason=reason)
    for name, value in changes.items():
        setattr(outcome, name, value)
    return outcome
