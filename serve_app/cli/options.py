"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path, typer.Option("--config", "-c", help="Settings file.", envvar="GEN_CONFIG")]
BaseUrl = Annotated[str, typer.Option("--base-url", help="Address of the service.", envvar="GEN_BASE_URL")]
Key = Annotated[
    str, typer.Option("--key", help="API key; else that of .gen/key.", envvar="GEN_KEY", show_default=False)
]

ACTOR = "command line"
"""Who the audit log says it was: whoever reaches the store is an operator."""
DEFAULT_CONFIG = Path("configs/local.yaml")
DEFAULT_BASE_URL = "http://127.0.0.1:8000"


def key_or_local(key: str) -> str:
    """The key given, else the local service's own. Raises ValueError when there is neither."""
    if key:
        return key
    path = Path(os.environ.get("GEN_DATA_DIR", ".gen")) / "key"
    if path.is_file():
        return path.read_text().strip()
    raise ValueError(f"no API key: pass --key or set GEN_KEY ({path} does not exist)")
