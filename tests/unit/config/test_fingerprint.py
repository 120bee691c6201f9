"""What a deployment is bound with, as a document, also where another release bound it."""

from __future__ import annotations

from dataclasses import dataclass

from serve_app.config import fingerprint


@dataclass(frozen=True, slots=True)
class Spec:
    steps: int
    logs: str = "text"


def test_all_fields_are_told() -> None:
    assert fingerprint.document(Spec(4)) == {"steps": 4, "logs": "text"}
