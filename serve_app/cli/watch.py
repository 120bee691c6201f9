"""`gen-serve watch`: a list of tasks that follows them."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from serve_app.cli.client import Client
from serve_app.cli.options import BaseUrl, Key
from serve_app.cli.service import connect
from serve_app.cli.table import table
from serve_app.cli.tasks import COLUMNS, row

_EVERY_S = 1.0


def watch(
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, the newest first.")] = 15,
    until_done: Annotated[bool, typer.Option("--until-done", help="End once no task is on its way.")] = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Show the project's tasks as they come along, until Ctrl-C. Into a pipe goes a line for every change."""
    console = Console()
    with connect(base_url, key) as client:
        if console.is_terminal:
            _draw(client, console, limit, until_done)
        else:
            _tell(client, limit, until_done)


def _draw(client: Client, console: Console, limit: int, until_done: bool) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            tasks = client.tasks(limit=limit)["tasks"]
            live.update(table(COLUMNS, map(row, tasks)), refresh=True)
            if until_done and _all_ended(client):
                return
            time.sleep(_EVERY_S)


def _tell(client: Client, limit: int, until_done: bool) -> None:
    told: dict[str, str] = {}
    while True:
        tasks = client.tasks(limit=limit)["tasks"]
        for task in reversed(tasks):
            if told.get(task["id"]) != task["status"]:
                told[task["id"]] = task["status"]
                print(task["id"], task["endpoint"], task["status"], sep="\t", flush=True)
        if until_done and _all_ended(client):
            return
        time.sleep(_EVERY_S)


def _all_ended(client: Client) -> bool:
    return not client.tasks(limit=1, active=True)["tasks"]
