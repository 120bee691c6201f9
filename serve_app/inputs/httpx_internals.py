"""Private attributes of httpx2, checked against the release that `WRITTEN_FOR` names.

httpx2 has no public parameter for the network backend, and only there can an address be checked and connected to in one
step.
"""

from __future__ import annotations

from typing import Final

import httpcore2
import httpx2

WRITTEN_FOR: Final = "2.16"


def set_network_backend(transport: httpx2.AsyncHTTPTransport, backend: httpcore2.AsyncNetworkBackend) -> None:
    transport._pool._network_backend = backend
