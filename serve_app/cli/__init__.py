"""The command line: `gen-serve`.

A command's module is imported when the command is used: most need Ray, Redis or the models' contract, and
`gen-serve --version` should not wait for them.
"""

from __future__ import annotations

import sys
from collections import UserDict
from importlib import import_module
from importlib.metadata import version as installed
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup


def _show(value: bool) -> None:
    if value:
        print(f"gen-serve {installed('gen-serve')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show)]

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
}
"""The module of each command: a function or a group of the command's name."""


class _Commands(UserDict[str, Any]):
    """Click commands by name, each imported when it is first looked up."""

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


class _Group(TyperGroup):
    """The top-level commands. `--help` imports them all."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(dict.fromkeys(_MODULES))


app = typer.Typer(
    cls=_Group,
    help="Durable, self-hosted asynchronous media generation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def gen_serve(version: Version = False) -> None:
    """What every command has."""


def main() -> None:
    """Exit codes: 0 done, 1 refused or failed, 2 wrong usage or configuration, 130 interrupted by Ctrl-C."""
    try:
        app(prog_name="gen-serve")
    except Exception as problem:
        code, message = _explain(problem)
        print(f"error: {' '.join(message.split())}", file=sys.stderr)  # in one line, so that it can be read in a log
        sys.exit(code)


def _explain(problem: Exception) -> tuple[int, str]:
    """The exit code and the message of an expected error. Raises any other again."""
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
            # Of many lines, those after the first about the library's insides.
            return 1, f"the object store: {str(problem).partition(chr(10))[0]}"
        case FileNotFoundError() | OverflowError() | ValueError():
            return 2, str(problem)
        case OSError():
            return 1, f"{problem.strerror}: {problem.filename}" if problem.filename else str(problem)
        case _:
            raise problem
