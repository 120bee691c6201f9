"""The command `gen-serve bench` of the optional distribution gen-serve-bench.

This module adds the addresses and keys of services on this machine, and `gen-serve bench record`.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from serve_app.cli.service import ServiceError, address_and_key, find_service

try:
    from gen_serve_bench import cli
except ModuleNotFoundError as missing:
    if missing.name != "gen_serve_bench":
        raise

    class _NotInstalled(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            raise ServiceError("gen-serve bench is not installed: pip install ./benchmarks/load")

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
            return find_service(base_url)[0], ""

    cli.locate = _locate
    bench = cli.app
    bench.command("record")(record)
