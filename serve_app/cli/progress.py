"""A task on its way, shown where a person looks on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import typer
from gen_serve_client import GenServeError, Result
from gen_serve_client.types import TaskResult
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from serve_app.cli.client import Client, told
from serve_app.cli.table import Amount

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_WARNINGS: Final = 10
_WARNING_CHARS: Final = 500


def followed(client: Client, task_id: str) -> Result:
    """What the task made, once it is there. Raises as `Client.wait` does."""
    columns = (TextColumn("{task.description:>10}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task("Pending", total=1.0)

        def show(task: TaskResult) -> None:
            bar.update(line, description=task["status"], completed=task.get("progress") or 0)

        return client.wait(task_id, progress=show)


def offer_to_cancel(client: Client, task_id: str) -> None:
    """After a Ctrl-C: asks on a terminal; elsewhere nobody is left who would want the result. Another one leaves."""
    try:
        if not _someone_answers() or typer.confirm("Cancel the task?", default=True, err=True):
            client.cancel(task_id)
            say(f"cancelled {task_id}; it costs nothing")
            return
    except GenServeError as problem:
        say(f"not cancelled: {told(problem)}")
    except (KeyboardInterrupt, typer.Abort):
        say("")
    say_how_to_go_on(task_id)


def say_how_to_go_on(task_id: str) -> None:
    say(f"{task_id} goes on; gen-serve tasks wait {task_id} fetches it")


def say_what_was_made(result: Result) -> None:
    """Its seed, cost and id, beside the name of the file, which goes to stdout."""
    facts = [
        f"seed {result.facts['seed']}" if "seed" in result.facts else "",
        f"{Amount(result.cost)} credits" if result.cost is not None else "",
        f"{result.facts['duration']:.1f} s" if "duration" in result.facts else "",
        f"id {result.id}",
    ]
    say(" · ".join(fact for fact in facts if fact))


def say_warnings(submitted: Mapping[str, Any]) -> None:
    """What the service can't do of what was asked for. It may be any service: its text is kept short, and plain."""
    warnings = submitted.get("warnings")
    told = [each for each in warnings if isinstance(each, str)] if isinstance(warnings, list) else []
    for warning in told[:_WARNINGS]:
        say("warning: " + "".join(letter if letter.isprintable() else " " for letter in warning[:_WARNING_CHARS]))


def say(text: str) -> None:
    """To the person, where programs that read stdout don't see it."""
    print(text, file=sys.stderr, flush=True)


def _someone_answers() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
