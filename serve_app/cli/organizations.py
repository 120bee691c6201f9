"""`gen-serve organizations`: who pays."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from serve_app.accounts.credits import Credits, told
from serve_app.accounts.organizations import OrganizationStore
from serve_app.cli.accounts import name as checked
from serve_app.cli.options import ACTOR, DEFAULT_CONFIG, Config
from serve_app.cli.store import connected
from serve_app.cli.table import moment, show

app = typer.Typer(help="Organizations.", no_args_is_help=True)


@app.command()
def create(
    organization: Annotated[str, typer.Argument(help="Its id: letters, digits, dots, dashes.")],
    name: Annotated[str, typer.Option(help="What people call it; else its id.")] = "",
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Make an organization, without credits."""

    async def make() -> None:
        async with connected(config) as (redis, prefix):
            if not await OrganizationStore(redis, prefix).create(checked(organization), name or organization, ACTOR):
                raise ValueError(f"there is an organization {organization} already")

    asyncio.run(make())
    print(f"made {organization}")


@app.command("list")
def list_organizations(config: Config = DEFAULT_CONFIG) -> None:
    """List all organizations with what they have left."""

    async def read() -> list[tuple[str, str, str, str]]:
        async with connected(config) as (redis, prefix):
            credits = Credits(redis, prefix)
            return [
                (
                    each.id,
                    each.name,
                    told((await credits.balance(each.id)).balance),
                    moment(each.created or None),
                )
                for each in await OrganizationStore(redis, prefix).list()
            ]

    show(("id", "name", "credits", "created"), asyncio.run(read()))
