"""The command `gen-serve webhooks`."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.output import Cell, at, show, show_json, to_objects
from serve_app.cli.service import Config, Json, ServiceError
from serve_app.cli.store import at_rest, open_redis
from serve_app.encryption import new_key
from serve_app.inputs.ssrf import parse_destination
from serve_app.tasks.reads import TaskReads
from serve_app.webhooks.outbox import Delivery, Outbox

webhooks = typer.Typer(help="Webhook deliveries, read directly from the task store.", no_args_is_help=True)

_PAGE = 100
_COLUMNS = ("id", "destination", "state", "attempts", "last answer", "next try")


@webhooks.command("list")
def list_deliveries(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    cursor: Annotated[str | None, typer.Option(help="Cursor of the next page, printed below the previous one.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed deliveries.")] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """List deliveries, newest first. A delivery has the id of its task."""
    deliveries, following = asyncio.run(_page(config, limit, cursor, failed))
    if as_json:
        show_json({"deliveries": to_objects(_COLUMNS, map(_row, deliveries)), "next": following})
        return
    show(_COLUMNS, map(_row, deliveries))
    if following:
        print(f"more: gen-serve webhooks list {'--failed ' if failed else ''}--cursor {following}")


@webhooks.command()
def replay(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of tasks.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed deliveries.")] = False,
    project: Annotated[str | None, typer.Option(help="With --failed: only of this project.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --failed: skip the confirmation.")] = False,
    config: Config = None,
) -> None:
    """Send webhooks again, now and with the full retry schedule."""
    if failed == bool(ids) or (project and not failed):
        raise ValueError("give ids of tasks, or --failed for all failed deliveries")
    if failed:
        counts, ids = asyncio.run(_list_failed(config, project))
        if ids and not project and not yes:
            summary = ", ".join(f"{n} of {name or 'deleted tasks'}" for name, n in sorted(counts.items()))
            typer.confirm(f"Send {len(ids)} webhooks of every project again ({summary})?", abort=True, err=True)
    unknown = asyncio.run(_replay(config, ids or []))
    print(f"{len(ids or []) - len(unknown)} will be sent again")
    if unknown:
        raise ServiceError(f"no delivery of {', '.join(unknown)}")


@webhooks.command("new-key")
def make_key() -> None:
    """Make a key for `sealing.keys`."""
    print(new_key())


async def _page(config: Path | None, limit: int, cursor: str | None, failed: bool) -> tuple[list[Delivery], str | None]:
    """Reads a page. A destination is shown by its address if the task's webhook can be read."""
    opening = at_rest(config)
    async with open_redis(config) as (redis, prefix):
        outbox, tasks = Outbox(redis, prefix, at_rest=opening), TaskReads(redis, prefix, opening)
        deliveries, following = await outbox.list_deliveries(limit=limit, cursor=cursor, failed=failed)
        tasks_or_none = await tasks.get_many([delivery.id for delivery in deliveries])
    readable = [task.webhook.url if task and task.webhook else "" for task in tasks_or_none]
    views = [
        replace(each, destination=each.destination._replace(origin=parse_destination(url))) if url else each
        for each, url in zip(deliveries, readable, strict=True)
    ]
    return views, following


async def _list_failed(config: Path | None, project: str | None) -> tuple[Counter[str], list[str]]:
    """Counts the failed deliveries of all projects, or of one, and lists the ids of their tasks."""
    counts, ids, cursor = Counter[str](), [], None
    async with open_redis(config) as (redis, prefix):
        outbox, tasks = Outbox(redis, prefix), TaskReads(redis, prefix, at_rest(config))
        while True:
            page, cursor = await outbox.list_deliveries(limit=_PAGE, cursor=cursor, failed=True)
            for task, delivery in zip(await tasks.get_many([each.id for each in page]), page, strict=True):
                owner = task.project if task else ""
                if project in (None, owner):
                    counts[owner] += 1
                    ids.append(delivery.id)
            if cursor is None:
                return counts, ids


async def _replay(config: Path | None, ids: list[str]) -> list[str]:
    """Replays deliveries. Returns the ids without one."""
    async with open_redis(config) as (redis, prefix):
        outbox = Outbox(redis, prefix)
        return [task_id for task_id in ids if not await outbox.replay(task_id)]


def _row(delivery: Delivery) -> tuple[Cell, ...]:
    last = delivery.log[-1] if delivery.log else None
    answer = "" if last is None else last.error if last.status is None else f"HTTP {last.status}"
    state, attempts = delivery.state.value, delivery.attempts
    return delivery.id, delivery.destination.origin, state, attempts, answer, at(delivery.next)
