"""`gen-serve keys`: make, list and revoke API keys."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

import typer

from serve_app.accounts.keys import DEFAULT_PROJECT, ApiKey, KeyStore
from serve_app.cli.options import DEFAULT_CONFIG, Config
from serve_app.cli.store import connected
from serve_app.cli.table import show

app = typer.Typer(help="API keys.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    project: Annotated[str, typer.Option(help="Project the key acts in.")] = DEFAULT_PROJECT,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Make a key and show it, this once."""

    async def make() -> str:
        async with connected(config) as (redis, prefix):
            return (await KeyStore(redis, prefix).create(name, project))[1]

    print(asyncio.run(make()))


@app.command("list")
def list_keys(config: Config = DEFAULT_CONFIG) -> None:
    """List the valid keys; the keys themselves are not stored."""

    async def read() -> list[ApiKey]:
        async with connected(config) as (redis, prefix):
            return await KeyStore(redis, prefix).list()

    show(
        ("id", "key", "name", "project", "created"),
        (
            (key.id, f"{key.hint}…", key.name, key.project, f"{datetime.fromtimestamp(key.created):%Y-%m-%d %H:%M}")
            for key in asyncio.run(read())
        ),
    )


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.")],
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Revoke a key; it stops working within 10 seconds."""

    async def remove() -> bool:
        async with connected(config) as (redis, prefix):
            return await KeyStore(redis, prefix).revoke(key_id)

    if not asyncio.run(remove()):
        raise ValueError(f"there is no key {key_id}")
    print(f"revoked {key_id}")
