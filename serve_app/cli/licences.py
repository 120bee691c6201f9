"""`gen-serve licences`: which models an organization may run itself."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from serve_app.accounts.credits import DEFAULT_ORGANIZATION
from serve_app.accounts.licences import LicenceStore
from serve_app.cli import configuration
from serve_app.cli.accounts import check_organization
from serve_app.cli.options import ACTOR, Config, Json
from serve_app.cli.store import connected
from serve_app.cli.table import Moment, show
from serve_app.config import catalog

app = typer.Typer(help="Licences of models.", no_args_is_help=True)

Model = Annotated[str, typer.Argument(help="A model slug of the catalog's licensed_models.")]
Organization = Annotated[str, typer.Option(help="Whose.")]


@app.command("add")
def add(model: Model, organization: Organization = DEFAULT_ORGANIZATION, config: Config = None) -> None:
    """License a model."""
    known = catalog.load(configuration.load(config)).licensed_models
    if model not in known:
        raise ValueError(f"there is no model {model} to license; known: {', '.join(known)}")

    async def license_model() -> None:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            await LicenceStore(redis, prefix).license(organization, model, ACTOR)

    asyncio.run(license_model())
    print(f"{organization}: {model} is licensed")


@app.command("list")
def list_licences(
    organization: Organization = DEFAULT_ORGANIZATION, as_json: Json = False, config: Config = None
) -> None:
    """List an organization's licences."""

    async def read() -> dict[str, float]:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            return await LicenceStore(redis, prefix).list(organization)

    found = asyncio.run(read())
    show(("model", "since"), ((model, Moment(since)) for model, since in found.items()), as_json=as_json)


@app.command("remove")
def remove(model: Model, organization: Organization = DEFAULT_ORGANIZATION, config: Config = None) -> None:
    """Withdraw a licence."""

    async def withdraw() -> bool:
        async with connected(config) as (redis, prefix):
            return await LicenceStore(redis, prefix).withdraw(organization, model, ACTOR)

    if not asyncio.run(withdraw()):
        raise ValueError(f"{organization} has no licence for {model}")
    print(f"{organization}: {model} is not licensed any more")
