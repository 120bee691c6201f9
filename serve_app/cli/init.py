"""`gen-serve init`: the folder, keys and secrets that a service starts with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from serve_app.accounts.keys import KeyStore
from serve_app.accounts.roles import Role
from serve_app.cli import configuration
from serve_app.cli.options import Config, Json
from serve_app.cli.progress import say
from serve_app.cli.store import connected
from serve_app.cli.table import Cell, show
from serve_app.config import bound, sources
from serve_app.config.settings import Settings
from serve_app.local import first_start
from serve_app.local.first_start import Thing

_COLUMNS = ("what", "file", "state")


def init(
    new_key: Annotated[
        str | None,
        typer.Option(help="Instead: make an operator's key of this name in the task store, and show it, this once."),
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Make the data folder, and the keys and secrets that are not there yet. Safe to repeat; up does the same.

    \b
    gen-serve init --config configs/local.yaml
    """
    chosen = configuration.load(config)
    if new_key is not None:
        print(asyncio.run(_operator_key(new_key, config)))
        return
    things = [*first_start.make_files(chosen), *asyncio.run(_keys(chosen, config))]
    show(_COLUMNS, map(_row, things), as_json=as_json)
    if chosen.ray.address is not None and not chosen.has_sealing_keys:
        say(
            f"every node of the cluster needs that key: {sources.variable(bound.SEALING_KEYS)}="
            f"'[\"…\"]' with what is in {sources.sealing_key_file(chosen.data_dir)}, or a copy of that file"
        )


async def _keys(chosen: Settings, config: Path | None) -> list[Thing]:
    async with connected(config, make=True) as (redis, _):
        return await first_start.make_keys(chosen, redis)


async def _operator_key(name: str, config: Path | None) -> str:
    async with connected(config) as (redis, prefix):
        return (await KeyStore(redis, prefix).create(name, role=Role.OPERATOR, actor="gen-serve init"))[1]


def _row(thing: Thing) -> tuple[Cell, ...]:
    return thing.what, str(thing.path), "made" if thing.is_new else "was there"
