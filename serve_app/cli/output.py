"""Output of commands: tables, JSON, progress, saved files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import httpx2
import typer
from gen_serve_client import GenServeError, Result
from gen_serve_client.types import TaskResult
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from serve_app.cli.fields import Form
from serve_app.cli.service import Client, explain


class Moment(float):
    """Epoch seconds, shown as local time."""

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(self):%Y-%m-%d %H:%M}"


class Amount(float):
    """Credits."""

    def __str__(self) -> str:
        return f"{self:.3f}".rstrip("0").rstrip(".")


class Bytes(float):
    def __str__(self) -> str:
        return decimal(int(self))


class Spent(NamedTuple):
    """Credits spent in a period, and its limit."""

    spent: Amount
    limit: Amount | None

    def __str__(self) -> str:
        return f"{self.spent}" + ("" if self.limit is None else f" of {self.limit}")


Cell: TypeAlias = str | float | Spent | Mapping[str, Any] | None


def show(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, as_json: bool = False) -> None:
    """Prints a table, or a JSON array of objects by column name, with underscores for spaces."""
    if as_json:
        show_json(to_objects(columns, rows))
    else:
        width = None if sys.stdout.isatty() else 1000
        Console(width=width).print(table(columns, rows), crop=False)


def to_objects(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[dict[str, Any]]:
    names = [name.replace(" ", "_") for name in columns]
    plain_rows = ([cell._asdict() if isinstance(cell, Spent) else cell for cell in row] for row in rows)
    return [dict(zip(names, row, strict=True)) for row in plain_rows]


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Builds a table that never truncates ids."""
    grid = Table(box=None)
    for name in columns:
        grid.add_column(name, no_wrap=True, overflow="ignore" if name == "id" else "ellipsis")
    for row in rows:
        grid.add_row(*(Text(_format(cell)) for cell in row))
    return grid


def moment(seconds: float | None) -> str:
    return "" if seconds is None else str(Moment(seconds))


def at(seconds: float | None) -> Moment | None:
    return None if seconds is None else Moment(seconds)


def _format(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, Mapping):
        return " ".join(f"{name}={value}" for name, value in cell.items())
    if isinstance(cell, bool):
        return "yes" if cell else ""
    if type(cell) is float:
        return f"{cell:g}"
    return str(cell)


INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells."""

_MAX_WARNINGS: Final = 10
_MAX_CHARS: Final = 500


def follow(client: Client, task_id: str) -> Result:
    """Waits for a task and draws its progress. Raises as `Client.wait` does."""
    status, outlook = TextColumn("{task.description:>10}"), TextColumn("{task.fields[outlook]}", markup=False)
    columns = (status, BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), outlook)
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task("Pending", total=1.0, outlook="")

        def show(task: TaskResult) -> None:
            outlook = describe_outlook(task.get("details") or {})
            bar.update(line, description=task["status"], completed=task.get("progress") or 0, outlook=outlook)

        return client.wait(task_id, progress=show)


def describe_outlook(details: Mapping[str, Any]) -> str:
    """Describes queue position and eta of an unfinished task, in the words of the web pages.

    `details` come from any service, so they may be missing or of another type.
    """
    message, position, eta = (details.get(name) for name in ("message", "queue_position", "eta"))
    if isinstance(message, str):
        return _printable(message)
    about = ""
    if isinstance(eta, int | float):
        about = f"about {max(1, round(eta))} s" if eta < 100 else f"about {round(eta / 60)} min"
    if isinstance(position, int):
        suffix = "th" if position % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
        return f"{position}{suffix} in the queue" + (about and f", {about}")
    return about and f"{about} left"


def ask_to_cancel(client: Client, task_id: str) -> None:
    """Offers to cancel a task after Ctrl-C; a second Ctrl-C keeps it. Without a terminal, cancels it."""
    try:
        if not _is_interactive() or typer.confirm("Cancel the task?", default=True, err=True):
            client.cancel(task_id)
            say(f"cancelled {task_id}; it costs nothing")
            return
    except GenServeError as problem:
        say(f"not cancelled: {explain(problem)}")
    except (KeyboardInterrupt, typer.Abort):
        say("")
    say_how_to_resume(task_id)


def say_how_to_resume(task_id: str) -> None:
    say(f"{task_id} keeps running; fetch its result with gen-serve tasks wait {task_id}")


def show_result(result: Result, path: Path, *, as_json: bool) -> None:
    if as_json:
        show_json({**result.task, "file": str(path)})
    else:
        print(path)
        say_result(result)


def say_result(result: Result) -> None:
    """Prints seed, cost and id to stderr; the file's name goes to stdout."""
    facts = [
        f"seed {result.facts['seed']}" if "seed" in result.facts else "",
        f"{Amount(result.cost)} credits" if result.cost is not None else "",
        f"{result.facts['duration']:.1f} s" if "duration" in result.facts else "",
        f"id {result.id}",
    ]
    say(" · ".join(fact for fact in facts if fact))


def say_warnings(response: Mapping[str, Any]) -> None:
    """Prints the warnings of a response. It comes from any service, so texts are truncated and made printable."""
    warnings = response.get("warnings")
    messages = [each for each in warnings if isinstance(each, str)] if isinstance(warnings, list) else []
    for warning in messages[:_MAX_WARNINGS]:
        say(f"warning: {_printable(warning)}")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text[:_MAX_CHARS])


def say(text: str) -> None:
    """Prints to stderr, for the person rather than for programs that read stdout."""
    print(text, file=sys.stderr, flush=True)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="File or folder to write to; default <id>.<format>. The suffix selects the format.",
        show_default=False,
    ),
]

_FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp", ".mp4": "mp4"}
_VIDEO = "mp4"
_AS_IT_IS = "original"
"""Format of endpoints whose results may be of any type."""


def check_writable(output: Path | None) -> None:
    """Raises ValueError unless a file can be written there. Creates no folder."""
    folder = Path() if output is None else output if output.is_dir() else output.parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} for {output.name if output else 'the result'}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{folder.resolve()} is not writable; name another folder with -o")


def with_format(body: Mapping[str, Any], endpoint: str, form: Form, output: Path | None) -> dict[str, Any]:
    """Adds the format of the suffix of `output` to the body. Raises ValueError if the endpoint lacks that format."""
    suffix = "" if output is None or output.is_dir() else output.suffix.lower()
    file_format, formats = _FORMATS.get(suffix), form.formats
    if not suffix or (file_format is None and formats is None):
        return dict(body)
    if _AS_IT_IS in (formats or ()) and file_format not in (formats or ()):
        return dict(body)  # the workflow decides, and `save` corrects the suffix
    if file_format is None or (formats is not None and file_format not in formats):
        raise ValueError(f"{endpoint} makes {', '.join(formats or ())}: {output} needs another suffix")
    if file_format == _VIDEO:
        return dict(body)
    body_format = body.get("output_format")
    if body_format is not None and _FORMATS.get(f".{body_format}".lower(), body_format) != file_format:
        raise ValueError(f"the suffix of {output} contradicts output_format={body_format}; leave out one of them")
    return {**body, "output_format": body_format or file_format}


def _format_of(suffix: str) -> str:
    return _FORMATS.get(suffix.lower(), suffix.lower())


def save(client: Client, result: Result, output: Path | None) -> Path:
    """Fetches the file and returns its path, with the suffix of the actual format. Saves further results beside it."""
    suffix = Path(httpx2.URL(result.url).path).suffix or ".jpeg"
    name = result.id + suffix
    target = Path(name) if output is None else output / name if output.is_dir() else output
    if target.suffix and _format_of(target.suffix) != _format_of(suffix):
        target = target.with_suffix(suffix)
    path = result.save(target)
    for number, url in enumerate(result.urls[1:], 2):
        further = path.with_name(f"{path.stem}-{number}{Path(httpx2.URL(url).path).suffix}")
        further.write_bytes(client.fetch(url))
        say(f"also {further}")
    return path
