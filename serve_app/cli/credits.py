"""`gen-serve credits`: what an organization has, and where it went."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Annotated

import typer

from serve_app.accounts.archive import Archive
from serve_app.accounts.credits import DEFAULT_ORGANIZATION, Balance, Credits, Entry, TooLittle, Usage, told
from serve_app.cli import configuration
from serve_app.cli.accounts import check_organization, millicredits
from serve_app.cli.options import ACTOR, BaseUrl, Config, Json, Key
from serve_app.cli.service import connect
from serve_app.cli.store import connected, object_store, objects_to_read
from serve_app.cli.table import Amount, Moment, show

app = typer.Typer(help="Credits of organizations; one is 0.01 USD.", no_args_is_help=True)

Organization = Annotated[str, typer.Option(help="Whose.")]


class _Change(Amount):
    def __str__(self) -> str:
        return f"{'+' if self > 0 else ''}{super().__str__()}"


@app.command("show")
def show_balance(
    context: typer.Context,
    organization: Annotated[str | None, typer.Option(help="Whose, read from the store.", show_default=False)] = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
    config: Config = None,
) -> None:
    """Show what the key's organization has left.

    With --organization or --config it is read from the store: also what is held for tasks on their way, and was spent.
    """
    source = context.get_parameter_source("config")
    if organization is None and (source is None or source.name != "COMMANDLINE"):
        with connect(base_url, key) as client:
            show(("left",), [(Amount(client.credits()),)], as_json=as_json)
        return
    whose = organization or DEFAULT_ORGANIZATION

    async def read() -> Balance:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, whose)
            return await Credits(redis, prefix).balance(whose)

    now = asyncio.run(read())
    amounts = (now.balance, now.held, now.spent, now.granted)
    show(("left", "held", "spent", "granted"), [tuple(map(Amount.of, amounts))], as_json=as_json)


@app.command()
def grant(
    amount: Annotated[float, typer.Argument(help="Credits; below 0 takes some back.")],
    organization: Organization = DEFAULT_ORGANIZATION,
    note: Annotated[str, typer.Option(help="What for; stands in the ledger.")] = "",
    once: Annotated[str, typer.Option(help="A name for this grant: repeated, it is made once.")] = "",
    config: Config = None,
) -> None:
    """Give credits to an organization."""

    async def give() -> int:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            credits = Credits(redis, prefix)
            try:
                balance, _ = await credits.grant(
                    organization, once or str(uuid.uuid4()), millicredits(amount), ACTOR, note
                )
            except TooLittle as problem:
                raise ValueError(f"{organization} has only {told(problem.balance)} credits") from None
            return balance

    print(f"{organization}: {told(asyncio.run(give()))} credits")


@app.command()
def ledger(
    organization: Organization = DEFAULT_ORGANIZATION,
    limit: Annotated[int, typer.Option(help="Entries, newest first.", min=1)] = 20,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """List every change of the balance."""

    async def read() -> list[Entry]:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            return (await Credits(redis, prefix, objects_to_read(config)).ledger(organization, limit))[0]

    show(
        ("time", "kind", "amount", "balance", "about"),
        (
            (
                Moment(entry.at),
                entry.kind,
                _Change.of(entry.amount),
                Amount.of(entry.balance),
                entry.about,
            )
            for entry in asyncio.run(read())
        ),
        as_json=as_json,
    )


@app.command()
def usage(
    organization: Organization = DEFAULT_ORGANIZATION,
    since: Annotated[datetime | None, typer.Option(help="First day, UTC; else the first of this month.")] = None,
    until: Annotated[datetime | None, typer.Option(help="Last day, UTC; else today.")] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """List what was used, by day, project and endpoint."""
    last = until.date() if until else datetime.now(UTC).date()
    first = since.date() if since else last.replace(day=1)

    async def read() -> list[Usage]:
        async with connected(config) as (redis, prefix):
            await check_organization(redis, prefix, organization)
            return await Credits(redis, prefix, objects_to_read(config)).usage(organization, first, last)

    show(
        ("day", "project", "endpoint", "tasks", "credits"),
        (
            (str(each.day), each.project, each.endpoint, each.tasks, Amount.of(each.cost))
            for each in asyncio.run(read())
        ),
        as_json=as_json,
    )


@app.command()
def archive(config: Config = None) -> None:
    """Move what is old of all ledgers, usage and audit logs to the object store now, as the service does by itself."""
    accounts = configuration.load(config).accounts

    async def move() -> int:
        async with connected(config) as (redis, prefix):
            objects = object_store(config)
            return await Archive(redis, prefix, objects, accounts.journal_entries, accounts.usage_days).archive_due()

    print(f"archived {asyncio.run(move())} segments")
