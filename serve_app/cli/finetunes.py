"""`gen-serve finetunes`: upload, list and delete tuned models, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.options import BaseUrl, Json, Key
from serve_app.cli.service import connect
from serve_app.cli.table import Moment, show

app = typer.Typer(help="Tuned models (LoRA).", no_args_is_help=True)


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="Safetensors file.")],
    base: Annotated[str, typer.Option(help="Endpoint it was made for, e.g. gen-3-image-klein.")],
    name: Annotated[str, typer.Option(help="What to call it; else the file's name.")] = "",
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Upload a tuned model and print its id."""
    if not file.is_file():
        raise FileNotFoundError(f"no such file: {file}")
    with connect(base_url, key) as client:
        print(client.upload_finetune(file, base, name or file.stem)["finetune_id"])


@app.command("list")
def list_finetunes(as_json: Json = False, base_url: BaseUrl = None, key: Key = "") -> None:
    """List the tuned models of the key's project, newest first."""
    with connect(base_url, key) as client:
        found = client.finetunes()
    show(
        ("id", "name", "base", "status", "rank", "MB", "uploaded"),
        (
            (
                finetune["finetune_id"],
                finetune["name"],
                finetune["base"],
                finetune["status"],
                finetune["rank"],
                round(finetune["size"] / 1e6, 1),
                Moment(finetune["created"]),
            )
            for finetune in found
        ),
        as_json=as_json,
    )


@app.command()
def remove(finetune_id: str, base_url: BaseUrl = None, key: Key = "") -> None:
    """Delete a tuned model."""
    with connect(base_url, key) as client:
        client.delete_finetune(finetune_id)
    print(f"deleted {finetune_id}")
