"""`gen-serve --version`."""

from __future__ import annotations

from importlib.metadata import version as installed
from typing import Annotated

import typer


def _show(wanted: bool) -> None:
    if wanted:
        print(f"gen-serve {installed('gen-serve')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show)]
