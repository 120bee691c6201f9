"""`gen-serve projects`: whom tasks belong to, how they are treated, what they may cost."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from serve_app.accounts.credits import DEFAULT_ORGANIZATION, Credits, Spending
from serve_app.accounts.erasures import Erasure, ErasureStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.cli.accounts import check_organization, found_project, millicredits, name
from serve_app.cli.client import ServiceError
from serve_app.cli.options import ACTOR, Config, Json
from serve_app.cli.store import connected, object_store
from serve_app.cli.table import Amount, Cell, Spent, moment, show
from serve_app.erasure import Eraser
from serve_app.submission.errors import StorageOutOfReach

app = typer.Typer(help="Projects.", no_args_is_help=True)

ProjectId = Annotated[str, typer.Argument(help="The project's id.")]
Limit = Annotated[float | None, typer.Option(help="Credits that may be spent in one; -1 for no limit.", min=-1)]


@app.command()
def create(
    project: ProjectId,
    organization: Annotated[str, typer.Option(help="Who pays.")] = DEFAULT_ORGANIZATION,
    config: Config = None,
) -> None:
    """Make a project."""

    async def make() -> None:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            if not await ProjectStore(redis, prefix).create(name(project), organization, ACTOR):
                raise ValueError(f"there is a project {project} already")

    asyncio.run(make())
    print(f"{project}: made in {organization}")


@app.command("list")
def list_projects(
    organization: Annotated[str, typer.Option(help="Whose.")] = DEFAULT_ORGANIZATION,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """List an organization's projects with their limits and what they have spent, in credits."""

    async def read() -> list[tuple[Project, list[Spending]]]:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            credits = Credits(redis, prefix)
            projects = await ProjectStore(redis, prefix).list(organization)
            return [(project, await credits.spending(project.id)) for project in projects]

    def row(project: Project, spent: list[Spending]) -> tuple[Cell, ...]:
        limits = (project.limit_day, project.limit_week, project.limit_month)
        windows = (_window(now, limit) for now, limit in zip(spent, limits, strict=True))
        return (project.id, project.weight, project.statuses, project.max_active, *windows)

    columns = ("id", "weight", "statuses", "active at most", "today", "this week", "this month")
    show(columns, (row(project, spent) for project, spent in asyncio.run(read())), as_json=as_json)


@app.command("set")
def set_project(
    project: ProjectId,
    weight: Annotated[float | None, typer.Option(help="Share of the queue against other projects.")] = None,
    statuses: Annotated[
        str | None, typer.Option(help="full, or basic: Reasoning and Generating shown as Pending.")
    ] = None,
    closed: Annotated[
        bool | None, typer.Option("--closed/--open", help="Whether it takes neither tasks nor tuned models.")
    ] = None,
    max_active: Annotated[
        int | None, typer.Option(help="Unfinished tasks at a time; 0 for the default.", min=0)
    ] = None,
    limit_day: Limit = None,
    limit_week: Limit = None,
    limit_month: Limit = None,
    config: Config = None,
) -> None:
    """Change what is named, and nothing else."""
    if statuses not in (None, "full", "basic"):
        raise ValueError("statuses must be full or basic")
    given: dict[str, Any] = {"weight": weight, "statuses": statuses}
    changes = {option: value for option, value in given.items() if value is not None}
    if max_active is not None:
        changes["max_active"] = max_active or None
    for window, limit in (("limit_day", limit_day), ("limit_week", limit_week), ("limit_month", limit_month)):
        if limit is not None:
            changes[window] = None if limit < 0 else millicredits(limit)
    if closed is not None:
        changes["closed"] = closed or None
    if not changes:
        raise ValueError("nothing to set: name at least one option")

    async def put() -> Project:
        async with connected(config) as (redis, prefix):
            projects = ProjectStore(redis, prefix)
            if closed is False and await ErasureStore(redis, prefix).is_under_way(project):
                raise ValueError(f"{project} is being erased: have that done first, then open it")
            await projects.change(await found_project(redis, prefix, project), changes, ACTOR)
            return await projects.get(project)

    now = asyncio.run(put())
    print(f"{now.id}: weight {now.weight:g}, {now.statuses} statuses{', closed' if now.closed else ''}")


@app.command()
def erase(
    organization: Annotated[str, typer.Argument(help="Who pays for it.")],
    project: ProjectId,
    confirm: Annotated[str, typer.Option(help="The project's id once more; else it is asked for.")] = "",
    config: Config = None,
) -> None:
    """Erase what a project has, but for the numbers of the ledger, and print the proof. May be repeated after a crash.

    The project is closed first, and stays so: gen-serve projects set --open.
    """
    confirm = confirm or typer.prompt(f"All that {project} has will be gone. Its id once more")
    if confirm != project:
        raise ValueError(f"nothing was erased: {confirm!r} is not {project!r}")

    async def run() -> Erasure:
        async with connected(config) as (redis, prefix):
            found = await found_project(redis, prefix, project)
            if found.organization != organization:
                raise ValueError(f"there is no project {project} in {organization}")
            try:
                return await Eraser(redis, prefix, object_store(config)).erase(found, ACTOR)
            except StorageOutOfReach:
                raise ServiceError("the object store is out of reach: repeat it later, it goes on from here") from None

    erasure = asyncio.run(run())
    print(f"{project}: asked for at {moment(erasure.began)} by {erasure.by}, done at {moment(erasure.done)}")
    show(("what", "erased"), ((kind, str(n)) for kind, n in erasure.deleted.items()))
    print(f"{erasure.looked_at} keys of the store were looked through in the end: nothing else is left")
    print(f"{erasure.ledger} entries of the ledger stay, which are books: amounts, times and ids")


def _window(now: Spending, limit: int | None) -> Spent:
    return Spent(Amount.of(now.spent), None if limit is None else Amount.of(limit))
