"""What a service was asked for, read from its task store, without anything that clients wrote."""

from __future__ import annotations

from pathlib import Path

from serve_app.cli.store import at_rest, connected
from serve_app.load.shape import Shape, Size
from serve_app.load.trace import Arrival
from serve_app.tasks.job import Job, NewerJob
from serve_app.tasks.reader import TaskReader
from serve_app.tasks.task import Task

_PAGE = 500


async def recorded(
    config: Path | None, since: float | None = None, until: float | None = None
) -> tuple[list[Arrival], int]:
    """The arrivals in the order of time, and how many tasks can't be read. Bounds are epoch seconds."""
    async with connected(config) as (redis, prefix):
        reader = TaskReader(redis, prefix, at_rest(config))
        tasks = [task for project in await reader.projects() for task in await _tasks(reader, project, since, until)]
    tasks.sort(key=lambda task: (task.created, task.id))
    tenants: dict[str, int] = {}
    found: list[Arrival] = []
    unreadable = 0
    first: float | None = None
    for task in tasks:
        shape = _shape(task)
        if shape is None:
            unreadable += 1
            continue
        first = task.created if first is None else first
        tenant = tenants.setdefault(task.project, len(tenants))
        found.append(Arrival.of(task.created - first, task.endpoint, tenant, shape))
    return found, unreadable


async def _tasks(reader: TaskReader, project: str, since: float | None, until: float | None) -> list[Task]:
    found: list[Task] = []
    cursor: str | None = None
    while True:
        tasks, cursor = await reader.list_tasks(project, limit=_PAGE, cursor=cursor, since=since)
        found += [task for task in tasks if until is None or task.created < until]
        if cursor is None:
            return found


def _shape(task: Task) -> Shape | None:
    """None for a job that can't be read. A size that the service chose is that of the result, if there is one."""
    try:
        job = Job.decode(task.job)
    except (NewerJob, ValueError):
        return None
    size = Size(job.width, job.height) if job.width and job.height else _made(task)
    sent = (*job.references, *filter(None, (job.control, job.image_prompt)))
    return Shape(
        size=size,
        steps=job.steps,
        references=len(sent),
        seconds=job.clip.seconds if job.clip else None,
        tuned=job.adapter is not None,
    )


def _made(task: Task) -> Size | None:
    width, height = ((task.result or {}).get(name) for name in ("width", "height"))
    return Size(width, height) if isinstance(width, int) and isinstance(height, int) else None
