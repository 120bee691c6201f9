"""Lists: tables for people, and JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeAlias

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text


class Moment(float):
    """Epoch seconds."""

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(self):%Y-%m-%d %H:%M}"


class Amount(float):
    """Credits."""

    @classmethod
    def of(cls, millicredits: int) -> Self:
        return cls(millicredits / 1000)

    def __str__(self) -> str:
        return f"{self:.3f}".rstrip("0").rstrip(".")


class Bytes(float):
    """A size."""

    def __str__(self) -> str:
        return decimal(int(self))


class Spent(NamedTuple):
    """What was spent in a window of time, and what may be at most."""

    spent: Amount
    limit: Amount | None

    def __str__(self) -> str:
        return f"{self.spent}" + ("" if self.limit is None else f" of {self.limit}")


Cell: TypeAlias = str | float | Spent | Mapping[str, Any] | None


def show(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, as_json: bool = False) -> None:
    """Prints a row a line, or an array of objects whose keys are the names of the columns, spaces as underscores."""
    if as_json:
        show_json(as_objects(columns, rows))
    else:
        width = None if sys.stdout.isatty() else 1000
        Console(width=width).print(table(columns, rows), crop=False)


def as_objects(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[dict[str, Any]]:
    names = [name.replace(" ", "_") for name in columns]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in rows]


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Ids are never cut, and into a pipe nothing is."""
    drawn = Table(box=None)
    for name in columns:
        drawn.add_column(name, no_wrap=True, overflow="ignore" if name == "id" else "ellipsis")
    for row in rows:
        drawn.add_row(*(Text(_told(cell)) for cell in row))
    return drawn


def moment(at: float | None) -> str:
    """Epoch seconds as local time, or nothing."""
    return "" if at is None else str(Moment(at))


def at(seconds: float | None) -> Moment | None:
    """A cell of epoch seconds, which may be unknown."""
    return None if seconds is None else Moment(seconds)


def _plain(cell: Cell) -> Any:
    return cell._asdict() if isinstance(cell, Spent) else cell


def _told(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, Mapping):
        return " ".join(f"{name}={value}" for name, value in cell.items())
    if isinstance(cell, bool):
        return "yes" if cell else ""
    if type(cell) is float:
        return f"{cell:g}"
    return str(cell)
