"""Commands of operators and users: `metrics`, `logs`, `openapi`, `models`, `finetunes`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from serve_app.cli.fields import Schema
from serve_app.cli.output import Amount, Cell, Moment, show
from serve_app.cli.service import BaseUrl, Config, Json, Key, connect, connect_without_key
from serve_app.cli.store import load_settings, open_redis
from serve_app.config import catalog
from serve_app.config.sections import reachable
from serve_app.storage.log_levels import LogLevels


def metrics(config: Config = None) -> None:
    """Serve the metrics for Prometheus until stopped. On one machine, gen-serve up already does.

    A cluster needs one such process. It needs the task store, but not Ray.
    """
    from serve_app.api.metrics import PATH, create_metrics_app
    from serve_app.launcher.running import MetricsServer, PortInUse, listen

    settings = load_settings(config)
    host, port = settings.metrics.host, settings.metrics.port
    if port is None:
        raise ValueError("metrics.port is null: set it, or GEN_METRICS__PORT, to the port for the metrics")
    if settings.redis.url is None:
        raise ValueError("redis.url is not set: gen-serve up runs the embedded server and serves its metrics itself")
    app = create_metrics_app(settings, catalog.load(settings))
    try:
        listener = listen(host, port, "metrics.port")
    except PortInUse as problem:
        raise ValueError(str(problem)) from None
    print(f"metrics: http://{reachable(host)}:{port}{PATH}", flush=True)
    MetricsServer(app, listener).run()


logs = typer.Typer(help="Log levels of a running service.", no_args_is_help=True)


@logs.command("level")
def set_level(
    module: Annotated[str, typer.Argument(help="A module or package, like serve_app.dispatcher.")],
    level: Annotated[
        str, typer.Argument(help="debug, info, warning, error or critical; default: the level of the settings.")
    ],
    config: Config = None,
) -> None:
    """Set the log level of a module. It takes effect within seconds, in models with their next job.

    \b
    gen-serve logs level serve_app.dispatcher debug
    """

    async def store() -> None:
        async with open_redis(config) as (redis, prefix):
            await LogLevels(redis, prefix).set(module, None if level == "default" else level)

    asyncio.run(store())
    print(f"{module}: {level}")


@logs.command("levels")
def list_levels(as_json: Json = False, config: Config = None) -> None:
    """List the levels set for modules. All others have the level of the settings."""

    async def read() -> dict[str, str]:
        async with open_redis(config) as (redis, prefix):
            return await LogLevels(redis, prefix).read()

    by_module = asyncio.run(read())
    show(("module", "level"), sorted(by_module.items()), as_json=as_json)


def openapi(
    config: Config = None,
    admin: Annotated[bool, typer.Option("--admin", help="Describe sessions and administration instead.")] = False,
) -> None:
    """Print the OpenAPI description of the service."""
    from serve_app.api.app import create_app
    from serve_app.api.openapi import admin_document

    settings = load_settings(config)
    app = create_app(settings, catalog.load(settings))
    print(json.dumps(admin_document(app) if admin else app.openapi(), indent=2, sort_keys=True))


_COLUMNS = ("endpoint", "mode", "credits", "per", "further MP", "MP sent", "deprecated", "does")


def models(as_json: Json = False, base_url: BaseUrl = None) -> None:
    """List the endpoints and their prices in credits: for the first megapixel, each further one, each input one."""
    with connect_without_key(base_url) as client:
        endpoints = client.description().endpoints()
    show(_COLUMNS, (row for name in endpoints for row in _rows(name, endpoints[name])), as_json=as_json)


def _rows(name: str, operation: Schema) -> Iterator[tuple[Cell, ...]]:
    """Yields a row for each mode; one row without prices if the service does not list them."""
    prices: list[dict[str, Any]] = operation.get("x-prices") or [{}]
    for price in prices:
        yield (
            name,
            price.get("mode"),
            _amount(price, "first"),
            "second" if price.get("per_second") else "image" if price else None,
            _amount(price, "out"),
            _amount(price, "input"),
            operation.get("deprecated", False),
            operation.get("summary", ""),
        )


def _amount(price: dict[str, Any], name: str) -> Amount | None:
    return Amount(price[name]) if name in price else None


finetunes = typer.Typer(help="Tuned models (LoRA).", no_args_is_help=True)


@finetunes.command()
def add(
    file: Annotated[Path, typer.Argument(help="Safetensors file.")],
    base: Annotated[str, typer.Option(help="The endpoint it was trained for, like gen-3-image-klein.")],
    name: Annotated[str, typer.Option(help="Name; by default the file's.")] = "",
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Upload a tuned model and print its id."""
    if not file.is_file():
        raise FileNotFoundError(f"no such file: {file}")
    with connect(base_url, key) as client:
        print(client.upload_finetune(file, base, name or file.stem)["finetune_id"])


@finetunes.command("list")
def list_finetunes(as_json: Json = False, base_url: BaseUrl = None, key: Key = "") -> None:
    """List the tuned models of the key's project, newest first."""
    with connect(base_url, key) as client:
        entries = client.finetunes()
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
            for finetune in entries
        ),
        as_json=as_json,
    )


@finetunes.command()
def remove(finetune_id: str, base_url: BaseUrl = None, key: Key = "") -> None:
    """Delete a tuned model."""
    with connect(base_url, key) as client:
        client.delete_finetune(finetune_id)
    print(f"deleted {finetune_id}")
