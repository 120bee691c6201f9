"""Tables for people, and for the programs people pipe them into."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table


def show(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a row a line; ids are never cut, and into a pipe nothing is."""
    table = Table(box=None)
    for name in columns:
        table.add_column(name, no_wrap=True, overflow="ignore" if name == "id" else "ellipsis")
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 1000
    Console(width=width).print(table, crop=False)


def moment(at: float | None) -> str:
    """Epoch seconds as local time, or nothing."""
    return "" if at is None else f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}"
