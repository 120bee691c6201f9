"""The command `gen-serve bench record`: a trace of submissions from the task store, without the clients' texts."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from serve_app.cli.service import Config

if TYPE_CHECKING:
    from gen_serve_bench.workload import Arrival

    from serve_app.tasks.reads import TaskReads
    from serve_app.tasks.task import Task

_PAGE: Final = 500
_Since = Annotated[
    datetime | None, typer.Option(help="Only submissions from this moment, in local time.", show_default=False)
]
_Until = Annotated[
    datetime | None, typer.Option(help="Only submissions before this moment, in local time.", show_default=False)
]


def record(
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the trace.", show_default=False)],
    since: _Since = None,
    until: _Until = None,
    config: Config = None,
) -> None:
    """Write the submissions in the task store to a trace: times, endpoints, shapes, and tenants as numbers.

    A trace never has prompts, ids, links or images. Refused submissions and deleted tasks are missing from it.
    """
    from gen_serve_bench.workload import write_trace

    if output.exists():
        raise ValueError(f"{output} exists; name another file with --output")
    period = (since.timestamp() if since else None, until.timestamp() if until else None)
    arrivals, unreadable = asyncio.run(read_arrivals(config, *period))
    if not arrivals:
        raise ValueError("the task store holds no tasks of that period")
    write_trace(output, arrivals)
    tenants = len({each.tenant for each in arrivals})
    print(f"{len(arrivals)} requests in {arrivals[-1].offset:.1f} s, of {tenants} tenants: {output}")
    if unreadable:
        print(f"{unreadable} tasks can't be read: their encryption key is gone, or they are of a newer release")


async def read_arrivals(config: Path | None, since: float | None, until: float | None) -> tuple[list[Arrival], int]:
    """Returns the arrivals in order of time, and the number of unreadable tasks. Bounds are epoch seconds."""
    from serve_app.cli.store import at_rest, open_redis
    from serve_app.tasks.reads import TaskReads

    async with open_redis(config) as (redis, prefix):
        reader = TaskReads(redis, prefix, at_rest(config))
        tasks = [task for project in await reader.projects() for task in await _tasks(reader, project, since, until)]
    tasks.sort(key=lambda task: (task.created, task.id))
    tenants: dict[str, int] = {}
    arrivals: list[Arrival] = []
    for task in tasks:
        tenant = tenants.setdefault(task.project, len(tenants))
        if arrival := _arrival(task, tasks[0].created, tenant):
            arrivals.append(arrival)
    return arrivals, len(tasks) - len(arrivals)


async def _tasks(reader: TaskReads, project: str, since: float | None, until: float | None) -> list[Task]:
    matches: list[Task] = []
    cursor: str | None = None
    while True:
        tasks, cursor = await reader.list_tasks(project, limit=_PAGE, cursor=cursor, since=since)
        matches += [task for task in tasks if until is None or task.created < until]
        if cursor is None:
            return matches


def _arrival(task: Task, first: float, tenant: int) -> Arrival | None:
    """Returns None for a payload that can't be read. A size that the prompt decides is left out."""
    from gen_serve_bench.workload import Arrival

    payload = task.read_payload()
    if payload is None:
        return None
    request, inputs = payload.request, payload.inputs
    return Arrival(
        offset=round(task.created - first, 3),
        endpoint=task.endpoint,
        tenant=tenant,
        width=None if request.open_ratio else request.width,
        height=None if request.open_ratio else request.height,
        steps=request.steps,
        references=len((*inputs.references, *filter(None, (inputs.control, inputs.image_prompt)))),
        seconds=request.seconds if request.video else None,
        tuned=payload.adapter is not None,
    )
