"""The command line: `gen-serve`."""

from __future__ import annotations

import sys

import typer
from gen_serve_client import GenServeError
from obstore.exceptions import BaseError
from pydantic import ValidationError
from redis.exceptions import RedisError

from serve_app.accounts.segments import ArchiveOutOfReach
from serve_app.cli import (
    backup,
    bench,
    check,
    conformance,
    credits,
    deploy,
    finetunes,
    generate,
    init,
    keys,
    licences,
    logs,
    members,
    metrics,
    models,
    openapi,
    organizations,
    projects,
    status,
    tasks,
    up,
    watch,
    webhooks,
    weights,
)
from serve_app.cli.client import ServiceError, told
from serve_app.cli.version import Version

app = typer.Typer(
    help="Durable, self-hosted asynchronous media generation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("up")(up.up)
app.command("init")(init.init)
app.command("deploy")(deploy.deploy)
app.command("down")(deploy.down)
app.command("check")(check.check)
app.command("generate")(generate.generate)
app.command("models")(models.models)
app.command("status")(status.status)
app.command("watch")(watch.watch)
app.command("metrics")(metrics.metrics)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("conformance")(conformance.conformance)
app.command("openapi")(openapi.openapi)
app.add_typer(bench.app, name="bench")
app.add_typer(credits.app, name="credits")
app.add_typer(finetunes.app, name="finetunes")
app.add_typer(keys.app, name="keys")
app.add_typer(licences.app, name="licences")
app.add_typer(logs.app, name="logs")
app.add_typer(members.app, name="members")
app.add_typer(organizations.app, name="organizations")
app.add_typer(projects.app, name="projects")
app.add_typer(tasks.app, name="tasks")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(weights.app, name="weights")


@app.callback()
def gen_serve(version: Version = False) -> None:
    """What every command has."""


def main() -> None:
    """Exit codes: 0 done, 1 refused or failed, 2 wrong usage or configuration, 130 interrupted by Ctrl-C."""
    try:
        app(prog_name="gen-serve")
    except ServiceError as problem:
        _end(1, str(problem))
    except GenServeError as problem:
        _end(1, told(problem))
    except RedisError as problem:
        _end(1, f"the task store: {problem}")
    except BaseError as problem:
        # Of many lines, those after the first about the library's insides.
        _end(1, f"the object store: {str(problem).partition(chr(10))[0]}")
    except ArchiveOutOfReach as problem:
        _end(1, f"older entries are out of reach in the object store: {problem}")
    except ValidationError as problem:
        _end(2, "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problem.errors()))
    except (FileNotFoundError, OverflowError, ValueError) as problem:
        _end(2, str(problem))
    except OSError as problem:
        _end(1, f"{problem.strerror}: {problem.filename}" if problem.filename else str(problem))


def _end(code: int, problem: str) -> None:
    """In one line, so that it can be read in a log."""
    print(f"error: {' '.join(problem.split())}", file=sys.stderr)
    sys.exit(code)
