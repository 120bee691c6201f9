"""`gen-serve logs`: how much a running service logs."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from serve_app.cli.options import Config, Json
from serve_app.cli.store import connected
from serve_app.cli.table import show
from serve_app.redis_store.log_levels import LogLevels

app = typer.Typer(help="How much a running service logs.", no_args_is_help=True)

USUAL = "default"


@app.command("level")
def level(
    module: Annotated[str, typer.Argument(help="A module, or what is above several: serve_app.dispatch.")],
    least: Annotated[
        str, typer.Argument(metavar="LEVEL", help="debug, info, warning, error, critical; default: as in the settings.")
    ],
    config: Config = None,
) -> None:
    """Set the least that a module logs; takes hold within seconds, in models with their next job.

    \b
    gen-serve logs level serve_app.dispatch debug
    """

    async def store() -> None:
        async with connected(config) as (redis, prefix):
            await LogLevels(redis, prefix).set(module, None if least == USUAL else least)

    asyncio.run(store())
    print(f"{module}: {least}")


@app.command("levels")
def levels(as_json: Json = False, config: Config = None) -> None:
    """List the levels that were set; all others are as in the settings."""

    async def read() -> dict[str, str]:
        async with connected(config) as (redis, prefix):
            return await LogLevels(redis, prefix).read()

    found = asyncio.run(read())
    show(("module", "level"), sorted(found.items()), as_json=as_json)
