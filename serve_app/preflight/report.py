"""All findings, in one table."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from serve_app.config import catalog as catalogs
from serve_app.config import fingerprint
from serve_app.config.bound import BoundSettings
from serve_app.config.settings import Settings
from serve_app.preflight import gpu_memory, node, objects
from serve_app.preflight.finding import Finding, Verdict, together
from serve_app.preflight.node import Questions
from serve_app.weights.wanted import wanted

COLUMNS = ("what", "where", "verdict", "found", "what to do")
_COLOURS = {Verdict.FINE: "green", Verdict.UNUSUAL: "yellow", Verdict.REFUSED: "red"}


def run(settings: Settings, switches: Mapping[str, str]) -> bool:
    """Looks at the cluster that this process has joined, and prints what it finds. Returns whether it may serve."""
    found = look(settings, switches)
    show(found)
    return may_serve(found)


def look(settings: Settings, switches: Mapping[str, str] | None) -> list[Finding]:
    """At this machine, and with `switches` at every node of the cluster that this process has joined."""
    shares = list(gpu_memory.look(settings, catalogs.load(settings)))
    if switches is None:
        return [*shares, *together(node.answer(_questions(settings, None, None), "here"))]
    from serve_app.preflight import cluster

    seen = asyncio.run(objects.write_seen(settings))
    try:
        return [*shares, *together(cluster.ask(_questions(settings, switches, seen), switches))]
    finally:
        if seen is not None:
            asyncio.run(objects.delete_seen(settings, seen))


def may_serve(findings: Sequence[Finding]) -> bool:
    return not any(each.verdict is Verdict.REFUSED for each in findings)


def show(findings: Sequence[Finding]) -> None:
    drawn = Table(*COLUMNS, box=None)
    for each in findings:
        verdict = Text(each.verdict.value, style=_COLOURS[each.verdict])
        drawn.add_row(each.what, each.where, verdict, Text(each.told), Text(each.mend))
    console = Console()
    console.print(drawn) if console.is_terminal else Console(width=1000).print(drawn)
    count = Counter(each.verdict for each in findings)
    console.print(", ".join(f"{count[verdict]} {verdict.value}" for verdict in Verdict))


def _questions(settings: Settings, switches: Mapping[str, str] | None, seen: str | None) -> Questions:
    return Questions(
        BoundSettings.of(settings),
        switches,
        wanted(settings, catalogs.load(settings)),
        fingerprint.release(),
        seen,
    )
