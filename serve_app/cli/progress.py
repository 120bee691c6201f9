"""A task on its way, shown where a person looks on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from serve_app.cli.client import Client, ServiceError
from serve_app.cli.table import Amount

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_WARNINGS: Final = 10
_WARNING_CHARS: Final = 500


def followed(client: Client, task_id: str) -> dict[str, Any]:
    """The task once it is Ready. Raises ServiceError when it came to nothing."""
    columns = (TextColumn("{task.description:>10}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task("Pending", total=1.0)
        task = client.wait(
            task_id, lambda task: bar.update(line, description=task["status"], completed=task["progress"] or 0)
        )
        if task["status"] == "Ready":
            bar.update(line, completed=1.0)
    check_ready(task)
    return task


def check_ready(task: Mapping[str, Any]) -> None:
    if task["status"] == "Task not found":
        raise ServiceError("there is no such task, or it is no longer kept")
    if task["status"] != "Ready":
        raise ServiceError(f"{task['status']}: {_told(task.get('details') or {})}")


def offer_to_cancel(client: Client, task_id: str) -> None:
    """After a Ctrl-C: asks on a terminal; elsewhere nobody is left who would want the result. Another one leaves."""
    try:
        if not _someone_answers() or typer.confirm("Cancel the task?", default=True, err=True):
            client.cancel(task_id)
            say(f"cancelled {task_id}; it costs nothing")
            return
    except ServiceError as problem:
        say(f"not cancelled: {problem}")
    except (KeyboardInterrupt, typer.Abort):
        say("")
    say_how_to_go_on(task_id)


def say_how_to_go_on(task_id: str) -> None:
    say(f"{task_id} goes on; gen-serve tasks wait {task_id} fetches it")


def say_what_was_made(task: Mapping[str, Any]) -> None:
    """Its seed, cost and id, beside the name of the file, which goes to stdout."""
    result = task["result"]
    facts = [
        f"seed {result['seed']}" if "seed" in result else "",
        f"{Amount(task['cost'])} credits" if task.get("cost") is not None else "",
        f"{result['duration']:.1f} s" if "duration" in result else "",
        f"id {task['id']}",
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


def _told(details: Mapping[str, Any]) -> str:
    reasons = details.get("Moderation Reasons")
    return ", ".join(reasons) if reasons else str(details.get("error", "no reason is given"))
