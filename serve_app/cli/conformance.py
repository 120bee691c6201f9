"""`gen-serve conformance`: which sentences of the interface hold at a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

import httpx2
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from serve_app.cli.client import ServiceError
from serve_app.cli.options import BaseUrl, Json, Key
from serve_app.cli.service import address_and_key
from serve_app.cli.table import show, show_json
from serve_app.conformance import report
from serve_app.conformance.check import Check, Outcome, Verdict
from serve_app.conformance.run import Options, chosen, run

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_BASE = "gen-3-image-klein"


def conformance(
    base_url: BaseUrl = None,
    key: Key = "",
    only: Annotated[list[str] | None, typer.Option(help="Only this section; may be repeated.")] = None,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks and about what they cost.")] = False,
    budget: Annotated[float, typer.Option(min=0, help="Credits that all of it may cost.")] = 150,
    receiver_host: Annotated[
        str | None,
        typer.Option(help="How the server reaches this machine, for webhooks; else 127.0.0.1 where it is local."),
    ] = None,
    finetune: Annotated[
        list[str] | None,
        typer.Option(help="ENDPOINT=ID of a tuned model of yours, and what it was made for; else some are skipped."),
    ] = None,
    video: Annotated[bool, typer.Option("--video", help="Make a video, too: minutes, and about 20 credits.")] = False,
    interface_only: Annotated[
        bool, typer.Option("--interface-only", help="Leave out what the interface leaves open and was decided here.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check from outside, sentence by sentence, how far a server keeps to the interface. It submits real tasks.

    Exit code 1 when a sentence does not hold.
    """
    checks = chosen(only or (), interface_only=interface_only)
    if list_checks:
        show(("section", "credits", "of", "sentence"), report.listed(checks))
        return
    address, secret = address_and_key(base_url, key)
    local = "127.0.0.1" if urlsplit(address).hostname in _LOOPBACK else None
    options = Options(
        base_url=address,
        key=secret,
        budget=budget,
        receiver_host=receiver_host or local,
        finetunes=dict(_tuned(each) for each in finetune or ()),
        video=video,
    )
    try:
        outcomes = asyncio.run(_outcomes(checks, options))
    except httpx2.HTTPError as problem:
        raise ServiceError(f"{address} can't be reached: {problem}") from None
    if as_json:
        show_json(report.as_json(outcomes))
    else:
        _print(outcomes)
    if fails := sum(each.verdict is Verdict.FAILS for each in outcomes):
        raise ServiceError(f"{fails} of {len(outcomes)} sentences do not hold")


async def _outcomes(checks: Sequence[Check], options: Options) -> list[Outcome]:
    columns = (TextColumn("{task.description:>14}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("", total=len(checks))
        outcomes: list[Outcome] = []
        async for outcome in run(checks, options):
            outcomes.append(outcome)
            bar.update(line, description=outcome.check.topic, advance=1)
        return outcomes


def _print(outcomes: Sequence[Outcome]) -> None:
    show(report.COLUMNS, report.rows(outcomes))
    print()
    for line in (*report.skips(outcomes), *report.failures(outcomes), "", report.summary(outcomes)):
        print(line)


def _tuned(text: str) -> tuple[str, str]:
    """`gen-pro=ft_1` as its two parts; an id alone is of the first endpoint."""
    base, sign, finetune_id = text.partition("=")
    return (base, finetune_id) if sign else (_BASE, text)
