"""The command line: `gen-serve`.

A command's module is imported when the command is used. Most modules need Ray, Redis or the models' contract, and
`gen-serve --version` should not wait for those.
"""

from __future__ import annotations

import sys
from collections import UserDict
from importlib import import_module, metadata
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup


def _print_version(value: bool) -> None:
    if value:
        print(f"gen-serve {metadata.version('gen-serve')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)]

_MODULES: Final = {
    "up": "up",
    "init": "up",
    "deploy": "cluster",
    "down": "cluster",
    "check": "cluster",
    "generate": "generate",
    "models": "ops",
    "status": "status",
    "watch": "tasks",
    "metrics": "ops",
    "plan": "plan",
    "profile": "plan",
    "backup": "backup",
    "restore": "backup",
    "openapi": "ops",
    "bench": "bench",
    "credits": "admin",
    "export": "admin",
    "finetunes": "ops",
    "keys": "admin",
    "licences": "admin",
    "logs": "ops",
    "members": "admin",
    "organizations": "admin",
    "projects": "admin",
    "tasks": "tasks",
    "webhooks": "webhooks",
    "weights": "cluster",
    "workflow": "workflow",
}
"""Module of each command. It has a function or a group of the command's name."""


class _LazyCommands(UserDict[str, Any]):
    """Click commands by name, imported on first access."""

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            module = import_module(f"serve_app.cli.{_MODULES[name]}")
            parent = typer.Typer(rich_markup_mode=None)
            entry = getattr(module, name)
            if isinstance(entry, typer.Typer):
                parent.add_typer(entry, name=name)
            else:
                parent.command(name)(entry)
            self.data[name] = typer.main.get_group(parent).commands[name]
        return self.data[name]


class _LazyGroup(TyperGroup):
    """The top-level commands. `--help` imports them all."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _LazyCommands(dict.fromkeys(_MODULES))


app = typer.Typer(
    cls=_LazyGroup,
    help="Durable, self-hosted asynchronous media generation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def gen_serve(version: Version = False) -> None:
    pass


def main() -> None:
    """Runs a command. Exit codes: 0 done, 1 refused or failed, 2 wrong usage or configuration, 130 Ctrl-C."""
    try:
        app(prog_name="gen-serve")
    except Exception as problem:
        code, message = _explain(problem)
        print(f"error: {' '.join(message.split())}", file=sys.stderr)  # one line, for logs
        sys.exit(code)


def _explain(problem: Exception) -> tuple[int, str]:
    """Returns exit code and message of an expected error. Raises any other again."""
    from gen_serve_client import GenServeError
    from obstore.exceptions import BaseError
    from redis.exceptions import RedisError

    from serve_app.cli.service import ServiceError, explain
    from serve_app.launcher.embedded_redis import RedisNotStarted

    match problem:
        case ServiceError() | RedisNotStarted():
            return 1, str(problem)
        case GenServeError():
            return 1, explain(problem)
        case RedisError():
            return 1, f"the task store: {problem}"
        case BaseError():
            # Further lines are about the library's internals.
            return 1, f"the object store: {str(problem).partition(chr(10))[0]}"
        case FileNotFoundError() | OverflowError() | ValueError():
            return 2, str(problem)
        case OSError():
            return 1, f"{problem.strerror}: {problem.filename}" if problem.filename else str(problem)
        case _:
            raise problem
