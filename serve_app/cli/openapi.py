"""`gen-serve openapi`: the interface's description, without starting anything."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from serve_app.cli import configuration
from serve_app.cli.options import Config
from serve_app.config import catalog


def openapi(
    config: Config = None,
    admin: Annotated[bool, typer.Option("--admin", help="Of sessions and administration.")] = False,
) -> None:
    """Print the OpenAPI description of the service."""
    from serve_app.http import description
    from serve_app.http.ingress import create_app

    chosen = configuration.load(config)
    app = create_app(chosen, catalog.load(chosen))
    print(json.dumps(description.admin_document(app) if admin else app.openapi(), indent=2, sort_keys=True))
