"""`gen-serve up` where Ray does not come up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from support.command_line import GenServe
from support.redis_process import free_port

from serve_app.local import ray_flags

BUSY = "The current node timed out during startup."


@pytest.fixture(autouse=True)
def _own_switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the launcher sets for its process must not stay in that of the tests."""
    monkeypatch.setattr(ray_flags, "apply_to_own", lambda *_: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_machine_too_busy_for_ray_is_told_so(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise Exception(BUSY)

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setenv("GEN_SERVICE__PORT", str(free_port()))
    monkeypatch.setenv("GEN_METRICS__PORT", str(free_port()))
    ran = gen_serve("up")
    assert ran.code == 1
    assert ran.err == f"error: Ray did not start: {BUSY} Nothing is lost; try again\n"
