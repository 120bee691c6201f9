"""Checks of Ray's processes: environment flags, the proxy's start script, authentication."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from serve_app import ray_internals
from serve_app.cluster.checks.result import CheckResult

PROXY_BINARY: Final = "RAY_SERVE_HAPROXY_BINARY_PATH"
_SCRIPT: Final = "proxy_start.py"
_WHAT: Final = "Ray flags"
_VITAL: Final = frozenset(
    (
        "RAY_SERVE_ENABLE_HA_PROXY",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED",
        "RAY_SERVE_USE_GRPC_BY_DEFAULT",
        "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS",
        "FORWARDED_ALLOW_IPS",
    )
)
"""Flags without which requests reach no replica, one dead caller stalls all others, or clients forge their address."""
_TUNABLE: Final = frozenset(("RAY_SERVE_HAPROXY_NBTHREAD",))
"""Flags that an operator may set to another value."""


def read_flags(names: Iterable[str]) -> dict[str, str | None]:
    """Returns the flags of this process, and under PROXY_BINARY the file that starts its proxy."""
    path = os.environ.get(PROXY_BINARY)
    return {name: os.environ.get(name) for name in names} | {PROXY_BINARY: path and _read_proxy_binary(path)}


def _read_proxy_binary(path: str) -> str:
    try:
        with open(path, "rb") as script:
            return _SCRIPT if _SCRIPT.encode() in script.read(4096) else path
    except OSError:
        return path


def check_flags(actual: Mapping[str, str | None], expected: Mapping[str, str]) -> Iterator[CheckResult]:
    wrong = {
        name: value
        for name, value in expected.items()
        if actual[name] != value and (name not in _TUNABLE or not actual[name])
    }
    if vital := _describe(wrong, _VITAL & wrong.keys()):
        yield CheckResult.refused(_WHAT, vital, "start Ray on every node with them in its environment")
    if other := _describe(wrong, wrong.keys() - _VITAL):
        yield CheckResult.warning(_WHAT, other, "docs/settings.md says what each is for")
    if actual[PROXY_BINARY] != _SCRIPT:
        remedy = (
            "set it as docs/settings.md says: else slow clients hold connections, and a restarted proxy answers 404"
        )
        yield CheckResult.warning(_WHAT, f"{PROXY_BINARY} does not run {_SCRIPT}", remedy)
    elif not wrong:
        yield CheckResult.fine(_WHAT, "all set")


def _describe(flags: Mapping[str, str], names: Iterable[str]) -> str:
    texts = [f"{name}={value}" for name, value in flags.items() if name in names]
    return f"without {', '.join(texts)}" if texts else ""


def check_token() -> CheckResult:
    if ray_internals.requires_token():
        return CheckResult.fine("Ray's token", "required")
    message = "not required: everyone who reaches a port of Ray can run code here"
    return CheckResult.warning("Ray's token", message, "start Ray on every node with RAY_AUTH_MODE=token")
