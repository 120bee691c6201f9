"""Ports on loopback for servers of this machine's own, which are chosen now and bound a moment later."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import Final

_LOWEST: Final = 10_000
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_OUTGOING: Final = 32_768
_TRIES: Final = 1000


def free_port() -> int:
    """As `free_ports`."""
    return free_ports(1)[0]


def free_ports(n: int) -> list[int]:
    """`n` different ones that nobody listens on.

    None is of those that the system gives to outgoing connections, as it does where a server asks for any port: one
    of these may be taken again before its server binds it. Raises OSError where there are none.
    """
    chance = SystemRandom()
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_TRIES):
            if len(ports) == n:
                return ports
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", chance.randrange(_LOWEST, _first_outgoing())))
            except OSError:
                continue
            ports.append(probe.getsockname()[1])
    raise OSError(f"no {n} free ports between {_LOWEST} and {_first_outgoing()}")


def _first_outgoing() -> int:
    """The least port of outgoing connections; where the system gives them nearly all, there is nothing to evade."""
    try:
        first = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_OUTGOING
    return first if first >= 2 * _LOWEST else _USUAL_OUTGOING
