"""Figures in the docs: each stands between two marks and is written from the published results.

    <!-- figures: NAME -->
    what VIEWS[NAME] makes of the results
    <!-- end of figures -->

A test writes them again and compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks import suite, views
from benchmarks.gpu import report
from benchmarks.results import PUBLISHED, Result, read_all

DOCS: Final = Path(__file__).parents[1] / "docs"
_BLOCK: Final = re.compile(r"(<!-- figures: (?P<view>[a-z-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)

View: TypeAlias = Callable[[Mapping[str, Result]], str]
"""Markdown of the published results."""

VIEWS: Final[dict[str, View]] = {
    "goals": views.goals,
    "machine": views.where,
    "batching": views.batching,
    "packing": views.packing,
    "gpu": lambda _: report.markdown(),
    "sizing": views.sizing,
    "clips": views.clips,
    "peers": views.peers,
    "chaos": partial(views.chaos, "chaos.json"),
    "chaos-promises": partial(views.chaos_promises, "chaos.json"),
    "chaos-cluster": partial(views.chaos, "chaos-cluster.json"),
    "backlog": partial(views.backlog, "chaos-cluster.json"),
    "chaos-cluster-promises": partial(views.chaos_promises, "chaos-cluster.json"),
}


def write(published: Path = PUBLISHED, docs: Path = DOCS) -> list[str]:
    """The names of the documents that changed."""
    found, changed = read_all(published), []
    for path in sorted(docs.glob("*.md")):
        before = path.read_text()
        after = filled(before, found)
        if after != before:
            path.write_text(after)
            changed.append(path.name)
    return changed


def filled(text: str, found: Mapping[str, Result]) -> str:
    """With every block written anew. Raises ValueError for one that asks for a view there is not."""

    def block(match: re.Match[str]) -> str:
        name = match["view"]
        if name not in VIEWS:
            raise ValueError(f"no figures {name!r}; there are {', '.join(VIEWS)}")
        shown = "Not measured yet." if name in suite.MODULES and name not in found else VIEWS[name](found)
        return f"{match[1]}\n{shown.strip()}\n\n{match[3]}"

    return _BLOCK.sub(block, text)
