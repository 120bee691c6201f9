"""`gen-serve members`: which role people have who come with a token."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.invitations import InvitationStore
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.roles import MEMBER_ROLES, Role
from serve_app.cli.accounts import check_organization, leaving
from serve_app.cli.options import ACTOR, Config, Json
from serve_app.cli.store import connected
from serve_app.cli.table import show

app = typer.Typer(help="Members of organizations.", no_args_is_help=True)

Person = Annotated[str, typer.Argument(help="As tokens name them: the claim `sub`.")]
Organization = Annotated[str, typer.Option(help="Whose.")]


@app.command("set")
def set_member(
    person: Person, role: Role, organization: Organization = DEFAULT_ORGANIZATION, config: Config = None
) -> None:
    """Make someone a member, or give a member another role."""
    if role not in MEMBER_ROLES:
        raise ValueError(f"members can be: {', '.join(MEMBER_ROLES)}")

    async def put() -> None:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            await OrganizationStore(redis, prefix).put_member(organization, person, role, ACTOR)
            await InvitationStore(redis, prefix).withdraw(organization, person)  # which may give more than the new role

    asyncio.run(put())
    print(f"{organization}: {person} is {role}")


@app.command("list")
def list_members(
    organization: Organization = DEFAULT_ORGANIZATION, as_json: Json = False, config: Config = None
) -> None:
    """List an organization's members."""

    async def read() -> dict[str, Role]:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            return await OrganizationStore(redis, prefix).members(organization)

    show(("person", "role"), asyncio.run(read()).items(), as_json=as_json)


@app.command("remove")
def remove(person: Person, organization: Organization = DEFAULT_ORGANIZATION, config: Config = None) -> None:
    """Take a member out."""

    async def take_out() -> bool:
        async with connected(config) as (redis, prefix):
            if not await OrganizationStore(redis, prefix).remove_member(organization, person, ACTOR):
                return False
            await leaving(redis, prefix).member(person, organization, ACTOR)
            return True

    if not asyncio.run(take_out()):
        raise ValueError(f"{organization} has no member {person}")
    print(f"{organization}: {person} is no member any more")
