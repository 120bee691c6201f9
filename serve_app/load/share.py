"""A generator's process: `python -m serve_app.load.share`.

It reads from stdin a line with the target, a line for each request and an empty one, says `ready`, reads the start in
epoch seconds, and writes a line for each outcome and one with its strain. A further line, or the end of stdin, stops
it: nobody is left who would want its outcomes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import threading
from typing import Any

import uvloop

from serve_app.load.clock import Clock
from serve_app.load.generator import generate, prepared
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.target import Target


def main() -> None:
    target = Target.model_validate_json(sys.stdin.readline())
    requests = [Request.of_json(json.loads(line)) for line in iter(sys.stdin.readline, "\n")]
    adapter = prepared(target, requests)
    _allow_connections()
    # What was read stays to the end; looking through it again and again would make the loop late.
    gc.freeze()
    _say({"ready": True})
    if not _is_number(start := sys.stdin.readline()):
        return
    clock = Clock(float(start))

    async def send() -> None:
        stop = asyncio.Event()
        _when_told(asyncio.get_running_loop(), stop)
        _, strain = await generate(target, requests, _told, clock=clock, adapter=adapter, stop=stop)
        _say({"strain": strain.as_json()})

    uvloop.run(send())


def _is_number(line: str) -> bool:
    return bool(line.strip()) and line.strip().replace(".", "", 1).isdigit()


def _when_told(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    def read() -> None:
        sys.stdin.readline()
        # The loop may be gone by now: then there is nothing left to stop.
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=read, daemon=True).start()


def _told(outcome: Outcome) -> None:
    _say({"outcome": outcome.as_json()})


def _say(what: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Who started this is gone, and stdin ends in a moment. What follows goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _allow_connections() -> None:
    """As many as this user may have: an open loop has no other bound."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
