"""Figures in the docs are those of the published results, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import documents
from benchmarks.harness import MODULES, Goal, Report, Result, read_all

NOTHING = Result("", False, 0, {"cores": 2, "cpu": "", "memory_gib": 1, "python": "", "versions": {}}, {}, Report({}))


@pytest.mark.parametrize("path", sorted(documents.DOCS.glob("*.md")), ids=lambda path: path.name)
def test_every_block_says_what_was_measured(path: Path) -> None:
    assert documents.filled(path.read_text(), read_all()) == path.read_text()


def test_every_view_stands_somewhere() -> None:
    everything = "".join(path.read_text() for path in documents.DOCS.glob("*.md"))
    assert [name for name in documents.VIEWS if f"<!-- figures: {name} -->" not in everything] == []


def test_what_is_published_is_still_measured_and_was_as_planned() -> None:
    published = read_all()
    assert set(published) <= set(MODULES)
    for name, result in published.items():
        assert not result.smoke
        assert not result.report.faults
        assert result.report.goals, name
        assert result.machine["commit"], name


def test_what_is_missed_comes_first_and_what_is_not_published_is_said() -> None:
    machine = {**NOTHING.machine, "versions": {"torch": "1", "ray": "2"}, "commit": "abc"}
    report = Report({}, [Goal("fine", "all", 1, 2), Goal("slow", "all", 3, 2)])
    table = documents.goals({"handoff": Result("handoff", False, 0, machine, {}, report)})
    assert table.index("slow") < table.index("fine")
    assert all(f"`{name}`" in table.split("Not measured yet:")[1] for name in MODULES if name != "handoff")


def test_a_block_is_written_anew_and_the_rest_is_left() -> None:
    text = "before\n<!-- figures: chaos -->\nold\n<!-- end of figures -->\nafter 12 ms\n"
    written = documents.filled(text, {})
    assert written.startswith("before\n<!-- figures: chaos -->\n\n| fault |")
    assert written.endswith("|\n\n<!-- end of figures -->\nafter 12 ms\n")
    assert "old" not in written
    assert documents.filled(written, {}) == written
    with pytest.raises(ValueError, match="no figures 'nonsense'"):
        documents.filled("<!-- figures: nonsense -->\n<!-- end of figures -->", {})
