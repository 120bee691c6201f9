"""`gen-serve keys`: make, list and revoke API keys."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer

from serve_app.accounts.keys import ApiKey, KeyStore
from serve_app.accounts.projects import DEFAULT_PROJECT, ProjectStore
from serve_app.accounts.roles import Role
from serve_app.cli.accounts import found_project, leaving
from serve_app.cli.options import ACTOR, Config, Json
from serve_app.cli.store import connected
from serve_app.cli.table import at, show

app = typer.Typer(help="API keys.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    project: Annotated[str, typer.Option(help="Project the key acts in.")] = DEFAULT_PROJECT,
    role: Annotated[Role, typer.Option(help="What it may do.")] = Role.DEVELOPER,
    days: Annotated[
        float | None, typer.Option(help="How long it is valid; else until it is revoked.", min=0, max=36500)
    ] = None,
    config: Config = None,
) -> None:
    """Make a key and show it, this once."""
    expires = None if days is None else time.time() + days * 86400

    async def make() -> str:
        async with connected(config) as (redis, prefix):
            organization = (await found_project(redis, prefix, project)).organization
            keys = KeyStore(redis, prefix)
            _, secret = await keys.create(
                name, project, role=role, expires=expires, organization=organization, actor=ACTOR
            )
            return secret

    print(asyncio.run(make()))


@app.command("list")
def list_keys(as_json: Json = False, config: Config = None) -> None:
    """List the valid keys; the keys themselves are not stored."""

    async def read() -> list[ApiKey]:
        async with connected(config) as (redis, prefix):
            return await KeyStore(redis, prefix).list()

    show(
        ("id", "key", "name", "project", "role", "created", "last used", "expires"),
        (
            (
                key.id,
                f"{key.hint}…",
                key.name,
                key.project,
                key.role,
                *map(at, (key.created, key.used, key.expires)),
            )
            for key in asyncio.run(read())
        ),
        as_json=as_json,
    )


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.")],
    config: Config = None,
) -> None:
    """Revoke a key; it stops working within 10 seconds."""

    async def remove() -> bool:
        async with connected(config) as (redis, prefix):
            keys = KeyStore(redis, prefix)
            key = await keys.get(key_id)
            if key is None:
                return False
            organization = (await ProjectStore(redis, prefix).get(key.project)).organization
            if not await keys.revoke(key_id, organization=organization, actor=ACTOR):
                return False
            await leaving(redis, prefix).key(key_id, organization)
            return True

    if not asyncio.run(remove()):
        raise ValueError(f"there is no key {key_id}")
    print(f"revoked {key_id}")
