"""`gen-serve tasks`: look at tasks and cancel them, over HTTP."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from serve_app.cli.client import Client, ServiceError
from serve_app.cli.options import DEFAULT_BASE_URL, BaseUrl, Key, key_or_local
from serve_app.cli.table import show

app = typer.Typer(help="Tasks.", no_args_is_help=True)


@app.command("list")
def list_tasks(
    limit: Annotated[int, typer.Option(min=1, max=100)] = 20,
    cursor: Annotated[
        str | None, typer.Option(help="Start of a further page, as printed below the one before.")
    ] = None,
    active: Annotated[bool, typer.Option("--active", help="Only tasks that have not ended.")] = False,
    base_url: BaseUrl = DEFAULT_BASE_URL,
    key: Key = "",
) -> None:
    """List the tasks of the key's project, newest first."""
    with Client(base_url, key_or_local(key)) as client:
        page = client.tasks(limit=limit, cursor=cursor, active=active)
    show(("id", "endpoint", "status", "attempt", "submitted", "took"), map(_row, page["tasks"]))
    if page["next"]:
        print(f"more: gen-serve tasks list --cursor {page['next']}")


@app.command("show")
def show_task(task_id: str, base_url: BaseUrl = DEFAULT_BASE_URL) -> None:
    """Show a task as polling answers it."""
    with Client(base_url) as client:
        task = client.poll(task_id)
    print(json.dumps(task, indent=2))
    if task["status"] == "Task not found":
        raise ServiceError("there is no such task, or it is no longer kept")


@app.command()
def cancel(task_id: str, base_url: BaseUrl = DEFAULT_BASE_URL, key: Key = "") -> None:
    """Cancel a task; its work stops at the next step."""
    with Client(base_url, key_or_local(key)) as client:
        client.cancel(task_id)
    print(f"cancelled {task_id}")


def _row(task: dict[str, Any]) -> tuple[str, ...]:
    submitted = f"{datetime.fromtimestamp(task['created']):%Y-%m-%d %H:%M:%S}"
    took = f"{task['finished'] - task['created']:.1f} s" if task["finished"] else ""
    return task["id"], task["endpoint"], task["status"], str(task["attempt"]), submitted, took
