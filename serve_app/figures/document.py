"""The table of all series in `docs/metrics.md`, made of their declarations.

`python -m serve_app.figures.document` writes it anew; a test compares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from serve_app.figures.declared import ALL
from serve_app.figures.series import Series

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
_BEGIN: Final = "<!-- series -->\n"
_END: Final = "<!-- end of series -->"


def filled(text: str) -> str:
    """The document with its table written anew. Raises ValueError where it has no place for one."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT.name} must have the lines {_BEGIN.strip()} and {_END}")
    return f"{before}{begin}\n{table()}\n\n{end}{after}"


def table() -> str:
    rows = ["| series | kind | what it tells | who tells it |", "|---|---|---|---|", *map(_row, ALL)]
    return "\n".join(rows)


def _row(series: Series) -> str:
    labels = f" `{{{', '.join(series.labels)}}}`" if series.labels else ""
    told = f"{series.help}; {series.about}" if series.about else series.help
    return f"| `{series.name}`{labels} | {series.kind} | {told} | {series.source} |"


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text()))
