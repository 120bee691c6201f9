"""The command line: `gen-serve`."""

from __future__ import annotations

import sys

import typer
from redis.exceptions import RedisError

from serve_app.accounts.segments import ArchiveOutOfReach
from serve_app.cli import (
    backup,
    credits,
    finetunes,
    generate,
    keys,
    licences,
    members,
    openapi,
    organizations,
    projects,
    tasks,
    up,
    webhooks,
)
from serve_app.cli.client import ServiceError

app = typer.Typer(
    help="Durable, self-hosted asynchronous media generation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("up")(up.up)
app.command("generate")(generate.generate)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("openapi")(openapi.openapi)
app.add_typer(credits.app, name="credits")
app.add_typer(finetunes.app, name="finetunes")
app.add_typer(keys.app, name="keys")
app.add_typer(licences.app, name="licences")
app.add_typer(members.app, name="members")
app.add_typer(organizations.app, name="organizations")
app.add_typer(projects.app, name="projects")
app.add_typer(tasks.app, name="tasks")
app.add_typer(webhooks.app, name="webhooks")


def main() -> None:
    """Exit codes: 0 done, 1 refused or failed, 2 wrong usage or configuration."""
    try:
        app()
    except ServiceError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(1)
    except RedisError as problem:
        print(f"error: the task store: {problem}", file=sys.stderr)
        sys.exit(1)
    except ArchiveOutOfReach as problem:
        print(f"error: older entries are out of reach in the object store: {problem}", file=sys.stderr)
        sys.exit(1)
    except (FileNotFoundError, OverflowError, ValueError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
