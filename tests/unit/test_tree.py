"""The files of the project themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOMS = ("serve_app", "clients", "deploy", "deployments", "training", "benchmarks", "configs", "tests", "docs")
ALLOWED = {"__init__.py", "py.typed"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_is_empty(repository: Path, room: str) -> None:
    """A merge that goes wrong can leave a file behind without a line, and tests with it."""
    files = [path for path in (repository / room).rglob("*") if path.is_file() and path.name not in ALLOWED]
    assert files
    assert [path for path in files if not path.stat().st_size] == []
