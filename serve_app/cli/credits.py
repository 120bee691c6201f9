"""`gen-serve credits`: what an organization has, and where it went."""

from __future__ import annotations

import asyncio
import uuid
from typing import Annotated

import typer

from serve_app.accounts.credits import DEFAULT_ORGANIZATION, Balance, Credits, Entry, TooLittle
from serve_app.accounts.organizations import OrganizationStore
from serve_app.cli.options import ACTOR, DEFAULT_CONFIG, Config
from serve_app.cli.store import connected
from serve_app.cli.table import moment, show

app = typer.Typer(help="Credits of organizations; one is 0.01 USD.", no_args_is_help=True)

Organization = Annotated[str, typer.Option(help="Whose.")]


@app.command("show")
def show_balance(organization: Organization = DEFAULT_ORGANIZATION, config: Config = DEFAULT_CONFIG) -> None:
    """Show what is left, what is held for tasks on their way, and what was spent."""

    async def read() -> Balance:
        async with connected(config) as (redis, prefix):
            return await Credits(redis, prefix).balance(organization)

    now = asyncio.run(read())
    amounts = (now.balance, now.held, now.spent, now.granted)
    show(("left", "held", "spent", "granted"), [tuple(f"{amount / 1000:g}" for amount in amounts)])


@app.command()
def grant(
    amount: Annotated[float, typer.Argument(help="Credits; below 0 takes some back.")],
    organization: Organization = DEFAULT_ORGANIZATION,
    note: Annotated[str, typer.Option(help="What for; stands in the ledger.")] = "",
    once: Annotated[str, typer.Option(help="A name for this grant: repeated, it is made once.")] = "",
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Give credits to an organization."""

    async def give() -> int:
        async with connected(config) as (redis, prefix):
            if await OrganizationStore(redis, prefix).get(organization) is None:
                raise ValueError(f"there is no organization {organization}")
            credits = Credits(redis, prefix)
            try:
                balance, _ = await credits.grant(
                    organization, once or str(uuid.uuid4()), round(amount * 1000), ACTOR, note
                )
            except TooLittle as problem:
                raise ValueError(f"{organization} has only {problem.balance / 1000:g} credits") from None
            return balance

    print(f"{organization}: {asyncio.run(give()) / 1000:g} credits")


@app.command()
def ledger(
    organization: Organization = DEFAULT_ORGANIZATION,
    limit: Annotated[int, typer.Option(help="Entries, newest first.", min=1)] = 20,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """List every change of the balance."""

    async def read() -> list[Entry]:
        async with connected(config) as (redis, prefix):
            return (await Credits(redis, prefix).ledger(organization, limit))[0]

    show(
        ("time", "kind", "amount", "balance", "about"),
        (
            (
                moment(entry.at),
                entry.kind,
                f"{entry.amount / 1000:+g}",
                f"{entry.balance / 1000:g}",
                " ".join(f"{name}={value}" for name, value in entry.about.items()),
            )
            for entry in asyncio.run(read())
        ),
    )
