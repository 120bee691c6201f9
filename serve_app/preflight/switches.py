"""Whether processes of a cluster have the service's switches: they count only where Ray starts with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

from serve_app.preflight.finding import Finding, fine, refused, unusual

_VITAL: Final = frozenset(
    (
        "RAY_SERVE_ENABLE_HA_PROXY",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED",
        "RAY_SERVE_USE_GRPC_BY_DEFAULT",
        "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS",
        "FORWARDED_ALLOW_IPS",
    )
)
"""Without these, requests reach nothing, one dead caller stalls all, or clients choose their own address."""
_FREE: Final = frozenset(("RAY_SERVE_HAPROXY_NBTHREAD",))
"""An operator may have a better value."""
PROXY: Final = "RAY_SERVE_HAPROXY_BINARY_PATH"
_SCRIPT: Final = "proxy_start.py"
_WHAT: Final = "switches"


def read(names: tuple[str, ...]) -> dict[str, str | None]:
    """Those of the process in which it is called, and the beginning of the proxy's script."""
    found = {name: os.environ.get(name) for name in names}
    path = os.environ.get(PROXY)
    found[PROXY] = None
    if path is not None:
        try:
            with open(path, "rb") as script:
                found[PROXY] = _SCRIPT if _SCRIPT.encode() in script.read(4096) else path
        except OSError:
            found[PROXY] = path
    return found


def findings(where: str, found: Mapping[str, str | None], wanted: Mapping[str, str]) -> Iterator[Finding]:
    """Of one process."""
    wrong = {
        name: value for name, value in wanted.items() if found[name] != value and (name not in _FREE or not found[name])
    }
    vital = {name: value for name, value in wrong.items() if name in _VITAL}
    if vital:
        yield refused(_WHAT, where, f"without {_as_set(vital)}", "start Ray on every node with them in its environment")
    if rest := {name: value for name, value in wrong.items() if name not in _VITAL}:
        yield unusual(_WHAT, where, f"without {_as_set(rest)}", "docs/settings.md says what each is for")
    if found[PROXY] != _SCRIPT:
        yield unusual(
            _WHAT,
            where,
            f"{PROXY} does not run {_SCRIPT}",
            "else slow clients hold connections up, and a restarted proxy answers 404: docs/settings.md",
        )
    elif not wrong:
        yield fine(_WHAT, where, "as they should be")


def _as_set(switches: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in switches.items())
