"""The commands `gen-serve tasks` and `gen-serve watch`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer
from gen_serve_client import TaskNotFound
from gen_serve_client.types import TaskSummary
from rich.console import Console
from rich.live import Live

from serve_app.cli.output import (
    INTERRUPTED,
    Amount,
    Cell,
    Output,
    check_writable,
    follow,
    save,
    say_how_to_resume,
    say_result,
    show,
    show_json,
    show_result,
    table,
)
from serve_app.cli.service import BaseUrl, Client, Json, Key, connect, connect_without_key

tasks = typer.Typer(help="Tasks.", no_args_is_help=True)

TaskId = Annotated[str, typer.Argument(help="The task's id.", show_default=False)]

_COLUMNS = ("id", "endpoint", "status", "progress", "attempt", "submitted", "took", "credits")


@tasks.command("list")
def list_tasks(
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    cursor: Annotated[str | None, typer.Option(help="Cursor of the next page, printed below the previous one.")] = None,
    active: Annotated[bool, typer.Option("--active", help="Only unfinished tasks.")] = False,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """List the tasks of the key's project, newest first. --json prints the service's response."""
    with connect(base_url, key) as client:
        page = client.tasks(limit=limit, cursor=cursor, active=active)
    if as_json:
        show_json(page)
        return
    show(_COLUMNS, map(_row, page["tasks"]))
    if page["next"]:
        print(f"more: gen-serve tasks list {'--active ' if active else ''}--cursor {page['next']}")


@tasks.command("show")
def show_task(task_id: TaskId, as_json: Json = False, base_url: BaseUrl = None) -> None:
    """Show a task. --json prints the service's response."""
    with connect_without_key(base_url) as client:
        task = client.poll(task_id)
    if as_json:
        show_json(task)
    if task["status"] == "Task not found":
        raise TaskNotFound(task_id)
    if not as_json:
        show(("what", "value"), _facts(task))


@tasks.command()
def wait(task_id: TaskId, output: Output = None, as_json: Json = False, base_url: BaseUrl = None) -> None:
    """Wait for a task, save its result, and print the file's name. Ctrl-C does not cancel the task.

    \b
    id=$(gen-serve generate gen-3-image-klein prompt="a red star" output_format=png --detach)
    gen-serve tasks wait $id -o star.png
    """
    check_writable(output)
    with connect_without_key(base_url) as client:
        try:
            result = follow(client, task_id)
        except KeyboardInterrupt:
            say_how_to_resume(task_id)
            raise typer.Exit(INTERRUPTED) from None
        path = save(client, result, output)
    show_result(result, path, as_json=as_json)


@tasks.command("watch")
def watch_task(task_id: TaskId, base_url: BaseUrl = None) -> None:
    """Show a task's progress until it has finished, without saving its result. Ctrl-C does not cancel the task."""
    with connect_without_key(base_url) as client:
        result = follow(client, task_id)
    print(result.url)
    say_result(result)


@tasks.command()
def cancel(task_id: TaskId, base_url: BaseUrl = None, key: Key = "") -> None:
    """Cancel a task. It stops at its next step."""
    with connect(base_url, key) as client:
        client.cancel(task_id)
    print(f"cancelled {task_id}")


def _row(task: TaskSummary) -> tuple[Cell, ...]:
    return (
        task["id"],
        task["endpoint"],
        task["status"],
        "" if task["progress"] is None else f"{task['progress']:.0%}",
        task["attempt"],
        f"{datetime.fromtimestamp(task['created']):%Y-%m-%d %H:%M:%S}",
        f"{task['finished'] - task['created']:.1f} s" if task["finished"] else "",
        None if task["cost"] is None else Amount(task["cost"]),
    )


def _facts(task: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    """Lists the fields of a task, with those of its result, details and preview."""
    flat = {name: value for name, value in task.items() if not isinstance(value, dict)}
    for name in ("result", "details", "preview"):
        flat |= task.get(name) or {}
    lines = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in flat.items()}
    return [(name, value) for name, value in lines.items() if value]


_REFRESH_S = 1.0


def watch(
    limit: Annotated[int, typer.Option(min=1, max=100, help="Number of tasks, newest first.")] = 15,
    until_done: Annotated[bool, typer.Option("--until-done", help="Exit when no task is unfinished.")] = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Show the progress of the project's tasks until Ctrl-C. Without a terminal, print a line for each change."""
    console = Console()
    with connect(base_url, key) as client:
        if console.is_terminal:
            _draw_tasks(client, console, limit, until_done)
        else:
            _print_tasks(client, limit, until_done)


def _draw_tasks(client: Client, console: Console, limit: int, until_done: bool) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            tasks = client.tasks(limit=limit)["tasks"]
            live.update(table(_COLUMNS, map(_row, tasks)), refresh=True)
            if until_done and _is_idle(client):
                return
            time.sleep(_REFRESH_S)


def _print_tasks(client: Client, limit: int, until_done: bool) -> None:
    statuses: dict[str, str] = {}
    while True:
        tasks = client.tasks(limit=limit)["tasks"]
        for task in reversed(tasks):
            if statuses.get(task["id"]) != task["status"]:
                statuses[task["id"]] = task["status"]
                print(task["id"], task["endpoint"], task["status"], sep="\t", flush=True)
        if until_done and _is_idle(client):
            return
        time.sleep(_REFRESH_S)


def _is_idle(client: Client) -> bool:
    return not client.tasks(limit=1, active=True)["tasks"]
