"""`gen-serve organizations`: who pays."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from deployments.contract.moderation import CATEGORIES
from serve_app.accounts.audit import AuditLog, Change
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, Credits
from serve_app.accounts.organizations import HIGHEST_TOLERANCE, OrganizationStore
from serve_app.cli import configuration
from serve_app.cli.accounts import check_organization
from serve_app.cli.accounts import name as checked
from serve_app.cli.options import ACTOR, Config, Json
from serve_app.cli.store import connected, objects_to_read
from serve_app.cli.table import Amount, Cell, Moment, at, show
from serve_app.config import catalog

app = typer.Typer(help="Organizations.", no_args_is_help=True)


@app.command()
def create(
    organization: Annotated[str, typer.Argument(help="Its id: letters, digits, dots, dashes.")],
    name: Annotated[str, typer.Option(help="What people call it; else its id.")] = "",
    config: Config = None,
) -> None:
    """Make an organization, without credits."""

    async def make() -> None:
        async with connected(config) as (redis, prefix):
            if not await OrganizationStore(redis, prefix).create(checked(organization), name or organization, ACTOR):
                raise ValueError(f"there is an organization {organization} already")

    asyncio.run(make())
    print(f"made {organization}")


@app.command("list")
def list_organizations(as_json: Json = False, config: Config = None) -> None:
    """List all organizations with what they have left."""

    async def read() -> list[tuple[Cell, ...]]:
        async with connected(config) as (redis, prefix):
            credits = Credits(redis, prefix)
            return [
                (
                    each.id,
                    each.name,
                    Amount.of((await credits.balance(each.id)).balance),
                    at(each.created or None),
                )
                for each in await OrganizationStore(redis, prefix).list()
            ]

    show(("id", "name", "credits", "created"), asyncio.run(read()), as_json=as_json)


@app.command()
def approve(
    organization: Annotated[str, typer.Argument(help="Its id.")],
    endpoint: Annotated[str, typer.Argument(help="As in the catalog: gen-2-max.")],
    tolerance: Annotated[int, typer.Argument(help="The highest safety tolerance; -1 leaves it to the catalog.")],
    config: Config = None,
) -> None:
    """Set the highest safety tolerance that an organization may ask an endpoint for."""
    _check_level(tolerance)
    served = catalog.load(configuration.load(config)).served
    if endpoint not in served:
        raise ValueError(f"there is no endpoint {endpoint}; there are: {', '.join(served)}")
    if tolerance > served[endpoint].highest_tolerance:
        raise ValueError(f"requests to {endpoint} can name levels up to {served[endpoint].highest_tolerance}")

    async def put() -> None:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            level = None if tolerance < 0 else tolerance
            await OrganizationStore(redis, prefix).approve(organization, endpoint, level, ACTOR)

    asyncio.run(put())
    print(f"{organization}: {endpoint} up to {'what the catalog says' if tolerance < 0 else tolerance}")


@app.command()
def cap(
    organization: Annotated[str, typer.Argument(help="Its id.")],
    category: Annotated[str, typer.Argument(help=f"One of: {', '.join(CATEGORIES)}.")],
    tolerance: Annotated[int, typer.Argument(help="The highest safety tolerance that counts; -1: no such limit.")],
    config: Config = None,
) -> None:
    """Hold a category of moderation to a tolerance, whatever an organization asks for."""
    _check_level(tolerance)
    if category not in CATEGORIES:
        raise ValueError(f"there is no category {category}; there are: {', '.join(CATEGORIES)}")

    async def put() -> None:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            level = None if tolerance < 0 else tolerance
            await OrganizationStore(redis, prefix).cap(organization, category, level, ACTOR)

    asyncio.run(put())
    print(f"{organization}: {category} up to {'any level' if tolerance < 0 else tolerance}")


def _check_level(tolerance: int) -> None:
    if not -1 <= tolerance <= HIGHEST_TOLERANCE:
        raise ValueError(f"the tolerance must be from 0 to {HIGHEST_TOLERANCE}, or -1")


@app.command()
def audit(
    organization: Annotated[str, typer.Argument(help="Its id.")] = DEFAULT_ORGANIZATION,
    limit: Annotated[int, typer.Option(help="Changes, newest first.", min=1)] = 20,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """List who changed what."""

    async def read() -> list[Change]:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            return (await AuditLog(redis, prefix, objects_to_read(config)).read(organization, limit))[0]

    show(
        ("time", "who", "what", "which", "details"),
        (
            (Moment(change.at), change.actor, change.action, change.subject, change.details)
            for change in asyncio.run(read())
        ),
        as_json=as_json,
    )
