"""`gen-serve up` and `gen-serve init`."""

from __future__ import annotations

import asyncio
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from gen_serve_client import GenServeError

from serve_app.accounts.keys import KeyStore
from serve_app.accounts.roles import Role
from serve_app.cli.generate import make
from serve_app.cli.output import Cell, say, show
from serve_app.cli.service import Client, Config, Json, ServiceError, explain
from serve_app.cli.store import load_settings, open_redis, settings_file
from serve_app.config import settings
from serve_app.config.replicas import SEALING_KEYS
from serve_app.config.settings import Settings, sealing_key_file, setting_variable
from serve_app.launcher import first_start
from serve_app.launcher.advice import advise
from serve_app.launcher.embedded_redis import AlreadyRunning
from serve_app.launcher.first_start import SetupFile
from serve_app.launcher.running import RunningService, announce

if TYPE_CHECKING:
    from serve_app.launcher.launcher import Launcher


_ENDPOINT = "gen-3-image-klein"


def up(
    config: Config = None,
    show_key: Annotated[
        bool, typer.Option("--show-key", help="Print the API key if this start makes it: in a container, say.")
    ] = False,
    first_image: Annotated[
        str | None, typer.Option(help="Once ready, make an image of this prompt, over HTTP as a client would.")
    ] = None,
) -> None:
    """Serve until Ctrl-C. Accepted tasks survive whatever happens, and go on with the next start.

    \b
    gen-serve up --config configs/local.yaml
    """
    from serve_app.launcher.launcher import Launcher, RayNotStarted, Stopped
    from serve_app.launcher.running import PortInUse

    file = settings_file(config)
    chosen = settings.load(file)
    began = time.monotonic()
    print(f"starting; data in {chosen.data_dir}", flush=True)
    try:
        with Launcher(chosen) as service, announce(_running_service(service, file)):
            print(
                f"ready after {time.monotonic() - began:.0f} s: {service.base_url} (pages; description at /docs)",
                flush=True,
            )
            print(f"API key in {service.key_file}", flush=True)
            if show_key and service.made_key:
                print(f"API key, shown once: {service.key_file.read_text().strip()}", flush=True)
            if first_image:
                _in_background(service.base_url, service.key_file, first_image, chosen.data_dir / "first-image.jpeg")
            service.serve()
    except (AlreadyRunning, PortInUse) as problem:
        raise ValueError(str(problem)) from None
    except RayNotStarted as problem:
        raise ServiceError(str(problem)) from None
    except OSError as problem:
        if problem.errno is None:
            raise  # of this service, such as a catalog that is not there
        raise ServiceError(f"{problem}: {advise(problem, 'accepted tasks are kept')}") from None
    except (Stopped, SystemError) as stop:
        # A signal that comes while Ray's compiled code waits for something, as at a slow start, arrives as the latter.
        if not isinstance(stop, Stopped) and not isinstance(stop.__cause__, Stopped):
            raise
        print("stopped; nothing accepted is lost", flush=True)


def _running_service(service: Launcher, config: Path) -> RunningService:
    chosen = service.settings
    return RunningService(
        base_url=service.base_url,
        metrics_url=service.metrics_url,
        key_file=service.key_file,
        config=config.resolve(),
        data_dir=chosen.data_dir,
        catalog=chosen.catalog,
    )


def _in_background(base_url: str, key_file: Path, prompt: str, target: Path) -> None:
    """In a thread of its own: the main thread watches over the server."""

    def first() -> None:
        try:
            with Client(base_url, key_file.read_text().strip()) as client:
                _, path = make(client, _ENDPOINT, {"prompt": prompt}, target)
        except GenServeError as problem:
            print(f"the first image failed: {explain(problem)}", file=sys.stderr, flush=True)
            return
        print(f"\nimage saved: {path}\n\nthe same by hand:\n\n{curl(base_url, key_file, prompt)}\n", flush=True)
        print("serving; Ctrl-C stops", flush=True)

    threading.Thread(target=first, daemon=True).start()


def curl(base_url: str, key_file: Path, prompt: str) -> str:
    """A line that submits the prompt and shows the result, pasted into a shell as it is."""
    body = '{"prompt": "' + prompt.replace("\\", "\\\\").replace('"', '\\"') + '"}'
    submit = (
        f'curl -s {base_url}/v1/{_ENDPOINT} -H "x-key: $(cat {shlex.quote(str(key_file))})" '
        f"-H 'content-type: application/json' -d {shlex.quote(body)}"
    )
    polling_url = "python3 -c 'import json, sys; print(json.load(sys.stdin)[\"polling_url\"])'"
    return f'curl -s "$({submit} | {polling_url})&wait=60"'


_COLUMNS = ("what", "file", "state")


def init(
    new_key: Annotated[
        str | None,
        typer.Option(help="Instead: make an operator's key of this name in the task store, and show it, this once."),
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Make the data folder, and the keys and secrets that are not there yet. Safe to repeat; up does the same.

    \b
    gen-serve init --config configs/local.yaml
    """
    chosen = load_settings(config)
    if new_key is not None:
        print(asyncio.run(_operator_key(new_key, config)))
        return
    things = [*first_start.make_files(chosen), *asyncio.run(_keys(chosen, config))]
    show(_COLUMNS, map(_row, things), as_json=as_json)
    if chosen.ray.address is not None and not chosen.has_sealing_keys:
        say(
            f"every node of the cluster needs that key: {setting_variable(SEALING_KEYS)}="
            f"'[\"…\"]' with what is in {sealing_key_file(chosen.data_dir)}, or a copy of that file"
        )


async def _keys(chosen: Settings, config: Path | None) -> list[SetupFile]:
    async with open_redis(config, make=True) as (redis, _):
        return await first_start.make_keys(chosen, redis)


async def _operator_key(name: str, config: Path | None) -> str:
    async with open_redis(config) as (redis, prefix):
        return (await KeyStore(redis, prefix).create(name, role=Role.OPERATOR, actor="gen-serve init"))[1]


def _row(file: SetupFile) -> tuple[Cell, ...]:
    return file.what, str(file.path), "made" if file.is_new else "was there"
