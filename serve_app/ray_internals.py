"""Access to Ray's private API, in this module alone; a test fails when Ray changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray import serve
from ray._private import node
from ray.serve.context import _get_global_client


def with_version(deployment: serve.Deployment, version: str) -> serve.Deployment:
    """Replicas of a deployment of the same version stay as they are when it is run again.

    Ray's decorator takes no version any more, since a `serve deploy` sets its own; what is run keeps it.
    """
    return deployment.options(version=version, _internal=True)


def http_address() -> tuple[str, int] | None:
    """Where Serve listens on this cluster, None where it does not run."""
    client = _get_global_client(raise_if_no_controller_running=False)
    return None if client is None else (client.http_config.host or "", client.http_config.port)


def actors_of_serve(within_s: float) -> Iterator[tuple[str, Any]]:
    """The controller and the proxies, by name; none where Serve does not run."""
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return
    controller: Any = client._controller
    yield "controller", controller
    proxies: Any = ray.get(controller.get_proxies.remote(), timeout=within_s)
    for number, proxy in enumerate(proxies.values(), start=1):
        yield f"proxy {number}", proxy


def is_token_asked_for() -> bool:
    """Whether Ray's ports ask for a token."""
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    return is_token_auth_enabled()


class OwnNode(node.Node):
    """The one node of a cluster that is for this service alone, without what Ray starts beside it for people.

    Each of the three costs half a second of processor at start and some 50 MiB, and nobody asks them here.
    """

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
