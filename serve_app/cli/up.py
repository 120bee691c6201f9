"""`gen-serve up`: run the service on this machine."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from gen_serve_client import GenServeError

from serve_app.cli import configuration
from serve_app.cli.client import Client, told
from serve_app.cli.generate import make
from serve_app.cli.options import Config
from serve_app.config import settings
from serve_app.local.embedded_redis import AlreadyRunning
from serve_app.local.running import RunningService, announced

if TYPE_CHECKING:
    from serve_app.local.launcher import Launcher

_ENDPOINT = "gen-3-image-klein"


def up(
    config: Config = None,
    first_picture: Annotated[
        str | None, typer.Option(help="Once ready, make a picture of this prompt, over HTTP as a client would.")
    ] = None,
) -> None:
    """Serve until Ctrl-C. Accepted tasks survive whatever happens, and go on with the next start.

    \b
    gen-serve up --config configs/local.yaml
    """
    from serve_app.local.launcher import Launcher, RayNotStarted, Stopped
    from serve_app.local.listening import PortInUse

    file = configuration.named_or_here(config)
    chosen = settings.load(file)
    began = time.monotonic()
    print(f"starting; data in {chosen.data_dir}", flush=True)
    try:
        with Launcher(chosen) as service, announced(_noted(service, file)):
            print(
                f"ready after {time.monotonic() - began:.0f} s: {service.base_url} (pages; description at /docs)",
                flush=True,
            )
            print(f"API key in {service.key_file}", flush=True)
            if first_picture:
                _in_background(
                    service.base_url, service.key_file, first_picture, chosen.data_dir / "first-picture.jpeg"
                )
            service.serve()
    except (AlreadyRunning, PortInUse) as problem:
        raise ValueError(str(problem)) from None
    except RayNotStarted as problem:
        print(f"error: {problem}", file=sys.stderr)
        raise typer.Exit(1) from None
    except (Stopped, SystemError) as stop:
        # A signal that comes while Ray's compiled code waits for something, as at a slow start, arrives as the latter.
        if not isinstance(stop, Stopped) and not isinstance(stop.__cause__, Stopped):
            raise
        print("stopped; nothing accepted is lost", flush=True)


def _noted(service: Launcher, config: Path) -> RunningService:
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
                _, saved = make(client, _ENDPOINT, {"prompt": prompt}, target)
        except GenServeError as problem:
            print(f"the first picture failed: {told(problem)}", file=sys.stderr, flush=True)
            return
        print(f"\npicture saved: {saved}\n\nthe same by hand:\n\n{curl(base_url, key_file, prompt)}\n", flush=True)
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
