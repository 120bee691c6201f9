"""The commands `gen-serve up` and `gen-serve init`."""

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
from serve_app.cli.output import say, show
from serve_app.cli.service import Client, Config, Json, ServiceError, explain
from serve_app.cli.store import load_settings, open_redis, settings_file
from serve_app.config import settings as all_settings
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
    show_key: Annotated[bool, typer.Option("--show-key", help="Print the API key if this start creates it.")] = False,
    first_image: Annotated[
        str | None, typer.Option(help="When ready, generate an image of this prompt over HTTP.")
    ] = None,
) -> None:
    """Serve until Ctrl-C. Accepted tasks survive crashes and continue after the next start.

    \b
    gen-serve up --config configs/local.yaml
    """
    from serve_app.launcher.launcher import Launcher, RayNotStarted, Stopped
    from serve_app.launcher.running import PortInUse

    file = settings_file(config)
    settings = all_settings.load(file)
    started_at = time.monotonic()
    print(f"starting; data in {settings.data_dir}", flush=True)
    try:
        with Launcher(settings) as service, announce(_running_service(service, file)):
            elapsed_s = time.monotonic() - started_at
            print(f"ready after {elapsed_s:.0f} s: {service.base_url} (pages; API description at /docs)", flush=True)
            print(f"API key in {service.key_file}", flush=True)
            if show_key and service.made_key:
                print(f"API key, shown once: {service.key_file.read_text().strip()}", flush=True)
            if first_image:
                target = settings.data_dir / "first-image.jpeg"
                _make_first_image(service.base_url, service.key_file, first_image, target)
            service.serve()
    except (AlreadyRunning, PortInUse) as problem:
        raise ValueError(str(problem)) from None
    except RayNotStarted as problem:
        raise ServiceError(str(problem)) from None
    except OSError as problem:
        if problem.errno is None:
            raise  # of this program, such as a missing catalog
        raise ServiceError(f"{problem}: {advise(problem, 'accepted tasks are kept')}") from None
    except (Stopped, SystemError) as stop:
        # A signal during Ray's compiled code, as in a slow start, arrives as SystemError.
        if not isinstance(stop, Stopped) and not isinstance(stop.__cause__, Stopped):
            raise
        print("stopped; accepted tasks continue after the next start", flush=True)


def _running_service(service: Launcher, config: Path) -> RunningService:
    settings = service.settings
    return RunningService(
        base_url=service.base_url,
        metrics_url=service.metrics_url,
        key_file=service.key_file,
        config=config.resolve(),
        data_dir=settings.data_dir,
        catalog=settings.catalog,
    )


def _make_first_image(base_url: str, key_file: Path, prompt: str, target: Path) -> None:
    """Generates in a thread: the main thread supervises the server."""

    def run() -> None:
        try:
            with Client(base_url, key_file.read_text().strip()) as client:
                _, path = make(client, _ENDPOINT, {"prompt": prompt}, target)
        except GenServeError as problem:
            print(f"the first image failed: {explain(problem)}", file=sys.stderr, flush=True)
            return
        print(f"\nimage saved: {path}\n\nthe same with curl:\n\n{curl(base_url, key_file, prompt)}\n", flush=True)
        print("serving; Ctrl-C stops", flush=True)

    threading.Thread(target=run, daemon=True).start()


def curl(base_url: str, key_file: Path, prompt: str) -> str:
    """Returns a shell command that submits the prompt and prints the result."""
    body = '{"prompt": "' + prompt.replace("\\", "\\\\").replace('"', '\\"') + '"}'
    submit = (
        f'curl -s {base_url}/v1/{_ENDPOINT} -H "x-key: $(cat {shlex.quote(str(key_file))})" '
        f"-H 'content-type: application/json' -d {shlex.quote(body)}"
    )
    polling_url = "python3 -c 'import json, sys; print(json.load(sys.stdin)[\"polling_url\"])'"
    return f'curl -s "$({submit} | {polling_url})&wait=60"'


def init(
    new_key: Annotated[
        str | None,
        typer.Option(help="Only create and print an operator key of this name. It can't be shown again."),
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Create the data folder, and its missing keys and secrets, as gen-serve up does. Safe to repeat.

    \b
    gen-serve init --config configs/local.yaml
    """
    settings = load_settings(config)
    if new_key is not None:
        print(asyncio.run(_operator_key(new_key, config)))
        return
    files = [*first_start.make_files(settings), *asyncio.run(_keys(settings, config))]
    rows = ((each.what, str(each.path), "created" if each.is_new else "was there") for each in files)
    show(("what", "file", "state"), rows, as_json=as_json)
    if settings.ray.address is not None and not settings.has_sealing_keys:
        say(
            f"every node of the cluster needs the sealing key: set {setting_variable(SEALING_KEYS)}='[\"…\"]' to the "
            f"content of {sealing_key_file(settings.data_dir)}, or copy that file"
        )


async def _keys(settings: Settings, config: Path | None) -> list[SetupFile]:
    async with open_redis(config, create=True) as (redis, _):
        return await first_start.make_keys(settings, redis)


async def _operator_key(name: str, config: Path | None) -> str:
    async with open_redis(config) as (redis, prefix):
        return (await KeyStore(redis, prefix).create(name, role=Role.OPERATOR, actor="gen-serve init"))[1]
