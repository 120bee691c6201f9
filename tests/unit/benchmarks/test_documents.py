"""Figures in the docs are those of the published results, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import documents, suite, views
from benchmarks.results import PUBLISHED, Result, read_all

NOTHING = Result("", "", "", False, 0, {}, {}, {}, {}, (), ())


@pytest.mark.parametrize("path", sorted(documents.DOCS.glob("*.md")), ids=lambda path: path.name)
def test_every_block_says_what_was_measured(path: Path) -> None:
    assert documents.filled(path.read_text(), read_all(PUBLISHED)) == path.read_text()


def test_every_view_stands_somewhere() -> None:
    everything = "".join(path.read_text() for path in documents.DOCS.glob("*.md"))
    assert [name for name in documents.VIEWS if f"<!-- figures: {name} -->" not in everything] == []


def test_what_is_published_is_still_measured() -> None:
    assert set(read_all(PUBLISHED)) <= set(suite.MODULES)


def test_what_is_not_published_is_said() -> None:
    assert all(f"`{name}`" in views.goals({}).split("Not measured yet:")[1] for name in suite.MODULES)
    assert "Not measured yet" not in views.goals(dict.fromkeys(suite.MODULES, NOTHING))


def test_what_is_published_was_measured_as_planned() -> None:
    for name, result in read_all(PUBLISHED).items():
        assert not result.smoke
        assert not result.faults
        assert result.machine["commit"], name


def test_a_block_is_written_anew_and_the_rest_is_left() -> None:
    text = "before\n<!-- figures: chaos -->\nold\n<!-- end of figures -->\nafter 12 ms\n"
    written = documents.filled(text, {})
    assert written.startswith("before\n<!-- figures: chaos -->\n\n| fault |")
    assert written.endswith("|\n\n<!-- end of figures -->\nafter 12 ms\n")
    assert "old" not in written
    assert documents.filled(written, {}) == written


def test_a_block_of_what_was_never_measured_says_so() -> None:
    text = "<!-- figures: peers -->\n<!-- end of figures -->"
    assert documents.filled(text, {}) == "<!-- figures: peers -->\n\nNot measured yet.\n\n<!-- end of figures -->"


def test_figures_that_nobody_has_are_refused() -> None:
    with pytest.raises(ValueError, match="no figures 'nonsense'"):
        documents.filled("<!-- figures: nonsense -->\n<!-- end of figures -->", {})


def test_a_table_is_markdown() -> None:
    assert views.table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
