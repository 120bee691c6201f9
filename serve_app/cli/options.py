"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Settings file; else that of the service that runs on this machine, else configs/local.yaml.",
        envvar="GEN_CONFIG",
        show_default=False,
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        help="Address of the service; else that of the one that runs on this machine, else http://127.0.0.1:8000.",
        envvar="GEN_BASE_URL",
        show_default=False,
    ),
]
Key = Annotated[
    str,
    typer.Option(
        "--key",
        help="API key; else that of the service on this machine.",
        envvar=["GEN_KEY", "GEN_API_KEY"],
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
