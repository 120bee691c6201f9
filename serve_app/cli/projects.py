"""`gen-serve projects`: how a project's tasks are treated."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from serve_app.accounts.projects import Project, ProjectStore
from serve_app.cli.options import DEFAULT_CONFIG, Config
from serve_app.cli.store import connected

app = typer.Typer(help="Projects.", no_args_is_help=True)


@app.command("set")
def set_project(
    project: Annotated[str, typer.Argument(help="The project's name.")],
    weight: Annotated[float, typer.Option(help="Share of the queue against other projects.")] = 1.0,
    statuses: Annotated[str, typer.Option(help="full, or basic: Reasoning and Generating shown as Pending.")] = "full",
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Set a project's share of the queue and the statuses it is shown."""
    if statuses not in ("full", "basic"):
        raise ValueError("statuses must be full or basic")
    chosen: Literal["full", "basic"] = "basic" if statuses == "basic" else "full"

    async def put() -> None:
        async with connected(config) as (redis, prefix):
            await ProjectStore(redis, prefix).put(Project(project, weight, chosen))

    asyncio.run(put())
    print(f"{project}: weight {weight:g}, {chosen} statuses")
