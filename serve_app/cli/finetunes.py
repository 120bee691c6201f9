"""`gen-serve finetunes`: upload, list and delete tuned models, over HTTP."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.client import Client
from serve_app.cli.options import DEFAULT_BASE_URL, BaseUrl, Key, key_or_local
from serve_app.cli.table import show

app = typer.Typer(help="Tuned models (LoRA).", no_args_is_help=True)


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="Safetensors file.")],
    base: Annotated[str, typer.Option(help="Endpoint it was made for, e.g. gen-3-image-klein.")],
    name: Annotated[str, typer.Option(help="What to call it; else the file's name.")] = "",
    base_url: BaseUrl = DEFAULT_BASE_URL,
    key: Key = "",
) -> None:
    """Upload a tuned model and print its id."""
    if not file.is_file():
        raise FileNotFoundError(f"no such file: {file}")
    with Client(base_url, key_or_local(key)) as client:
        print(client.upload_finetune(file, base, name or file.stem)["finetune_id"])


@app.command("list")
def list_finetunes(base_url: BaseUrl = DEFAULT_BASE_URL, key: Key = "") -> None:
    """List the tuned models of the key's project, newest first."""
    with Client(base_url, key_or_local(key)) as client:
        found = client.finetunes()
    show(
        ("id", "name", "base", "status", "rank", "MB", "uploaded"),
        (
            (
                finetune["finetune_id"],
                finetune["name"],
                finetune["base"],
                finetune["status"],
                str(finetune["rank"]),
                f"{finetune['size'] / 1e6:.1f}",
                f"{datetime.fromtimestamp(finetune['created']):%Y-%m-%d %H:%M}",
            )
            for finetune in found
        ),
    )


@app.command()
def remove(finetune_id: str, base_url: BaseUrl = DEFAULT_BASE_URL, key: Key = "") -> None:
    """Delete a tuned model."""
    with Client(base_url, key_or_local(key)) as client:
        client.delete_finetune(finetune_id)
    print(f"deleted {finetune_id}")
