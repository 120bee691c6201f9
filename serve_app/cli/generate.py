"""`gen-serve generate`: one request from the command line, to any service that speaks this dialect."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from serve_app.cli.client import Client, ServiceError, extension
from serve_app.cli.options import DEFAULT_BASE_URL, BaseUrl, Key, key_or_local


def generate(
    path: Annotated[str, typer.Argument(help="Endpoint, e.g. gen-3-image-klein.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(
            help="Fields as name=value. JSON values are taken as such, @FILE as a picture; repeat for lists."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; default <id>.<format>.")] = None,
    base_url: BaseUrl = DEFAULT_BASE_URL,
    key: Key = "",
) -> None:
    """Submit a request, wait for its result, save it."""
    body = request_body(fields or [])
    with Client(base_url, key_or_local(key)) as client:
        saved = run(client, path, body, output)
    print(saved)


def run(client: Client, path: str, body: dict[str, Any], output: Path | None) -> Path:
    """Submits, waits with a progress bar, saves. Returns where. Raises ServiceError when it came to nothing."""
    task_id = client.submit(path, body)["id"]
    columns = (TextColumn("{task.description:>10}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("Pending", total=1.0)
        ended = client.wait(
            task_id, lambda task: bar.update(line, description=task["status"], completed=task["progress"] or 0)
        )
    if ended["status"] != "Ready":
        raise ServiceError(f"{ended['status']}: {json.dumps(ended['details'])}")
    link = ended["result"]["sample"]
    target = output or Path(task_id + extension(link))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(client.fetch(link))
    return target


def request_body(fields: list[str]) -> dict[str, Any]:
    """`["steps=4", "images=@a.png", "images=@b.png"]` as a request body. Raises ValueError for what it can't read."""
    body: dict[str, Any] = {}
    for field in fields:
        name, sign, text = field.partition("=")
        if not sign or not name:
            raise ValueError(f"{field!r} is not name=value")
        value = _value(text)
        if name in body:
            earlier = body[name] if isinstance(body[name], list) else [body[name]]
            body[name] = [*earlier, value]
        else:
            body[name] = value
    if isinstance(images := body.get("images"), str):
        body["images"] = [images]
    return body


def _value(text: str) -> Any:
    if text.startswith("@"):
        file = Path(text[1:])
        if not file.is_file():
            raise ValueError(f"no such file: {file}")
        return base64.b64encode(file.read_bytes()).decode()
    try:
        return json.loads(text)
    except ValueError:
        return text
