"""`gen-serve bench`, by the distribution gen-serve-bench, which may not be installed.

Here it learns of the services of this machine, and to record what one was asked for.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from serve_app.cli.service import ServiceError, address_and_key, find

try:
    from gen_serve_bench import cli
except ModuleNotFoundError as missing:
    if missing.name != "gen_serve_bench":
        raise

    class _NotInstalled(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            raise ServiceError("gen-serve bench is a distribution of its own: pip install ./benchmarks/load")

    bench = typer.Typer(cls=_NotInstalled, help="Put any server under load (not installed).")
    bench.callback()(lambda: None)
else:
    from serve_app.cli.recording import record

    def _locate(base_url: str | None, key: str, required: bool) -> tuple[str, str]:
        try:
            return address_and_key(base_url, key)
        except ValueError:
            if required:
                raise
            return find(base_url)[0], ""

    cli.locate = _locate
    bench = cli.app
    bench.command("record")(record)
