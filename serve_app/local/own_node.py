"""The one node of a cluster that is for this service alone, without what Ray starts beside it for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray._private import node


class OwnNode(node.Node):
    """Each of the three costs half a second of processor at start and some 50 MiB, and nobody asks them here."""

    def start_monitor(self) -> None:
        """Adds nodes to a cluster and takes them away: there is one."""

    def start_log_monitor(self) -> None:
        """Sends what workers print to the driver, which does not want it; Ray's log files are written without it."""

    def start_api_server(self, **_: Any) -> None:
        """Answers Ray's dashboard and its REST API. Ray starts it with `include_dashboard=False`, too."""


@contextmanager
def begun_as_own() -> Iterator[None]:
    """A `ray.init` within it that starts a cluster starts an `OwnNode`: for this, Ray has no switch."""
    whole = node.Node
    node.Node = OwnNode
    try:
        yield
    finally:
        node.Node = whole
