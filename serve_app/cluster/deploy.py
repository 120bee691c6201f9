"""Deployment of the application to a shared Ray cluster.

Import it once Ray's flags are set: Ray reads them when it is imported.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import ray
from ray import serve
from ray.exceptions import AuthenticationError, RayTaskError
from ray.serve.config import HTTPOptions, ProxyLocation

from deployments.contract.model_fault import ModelFault
from serve_app import ray_internals
from serve_app.application import APP_NAME
from serve_app.config.settings import Settings

_CONNECT_TIMEOUT_S: Final = 5.0
_POLL_PERIOD_S: Final = 0.1
_SETTLE_S: Final = 2.0
"""Seconds for which Serve may still report the state before a deployment."""
_FAILED: Final = ("DEPLOY_FAILED", "UNHEALTHY")
_PROXIES: Final = {"head": ProxyLocation.HeadOnly, "every_node": ProxyLocation.EveryNode}


class ClusterUnreachable(RuntimeError):
    """The cluster did not answer."""


@contextmanager
def connect(address: str) -> Iterator[None]:
    """Makes this process a driver of the cluster. Raises ClusterUnreachable, or ValueError for a wrong token."""
    _check_reachable(address)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    try:
        # The namespace of Serve's controller.
        ray.init(address=address, namespace="serve", log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError:
        raise ValueError(
            "the Ray cluster at ray.address rejects this process, whose token is missing or another: set "
            "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to that of its nodes (docs/settings.md)"
        ) from None
    except Exception as problem:
        raise ClusterUnreachable(f"the Ray cluster at {address} is out of reach: {problem}") from problem
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fails within seconds if no server listens; Ray would retry for many minutes."""
    match = re.fullmatch(r"\[?([^\[\]/]+?)\]?:(\d+)", address)
    if match is None:  # such as `auto`, which Ray resolves
        return
    try:
        socket.create_connection((match[1], int(match[2])), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as problem:
        raise ClusterUnreachable(
            f"no server listens at ray.address, {address}: {problem.strerror or problem}"
        ) from None


def listen_everywhere(settings: Settings) -> str | None:
    """Starts Serve on the address of the settings, if it does not run yet.

    A running Serve keeps its address, because a restart would stop all applications. Returns a warning if it listens
    elsewhere. Raises RuntimeError if the address can't be bound.
    """
    host, port = settings.service.host, settings.service.port
    address = ray_internals.http_address()
    if address is None:
        try:
            serve.start(
                http_options=HTTPOptions(host=host, port=port), proxy_location=_PROXIES[settings.service.proxies]
            )
        except RayTaskError as problem:
            raise RuntimeError(f"Serve does not listen on {host}:{port}: {str(problem.cause).strip()}") from None
        return None
    if address == (host, port):
        return None
    return (
        f"Serve runs on this cluster already and listens on {address[0]}:{address[1]}: service.host and service.port, "
        f"{host}:{port}, are not what clients reach"
    )


def deploy_application(application: serve.Application, models: Collection[str]) -> dict[str, ModelFault]:
    """Deploys the application and waits until it runs. Replicas of an unchanged version stay.

    Returns the `models` that can't be loaded, which Serve goes on trying. Raises RuntimeError if another deployment
    fails.
    """
    target = serve.RunTarget(application, name=APP_NAME, route_prefix="/")
    serve.run_many([target], wait_for_applications_running=False)
    settled_at = time.monotonic() + _SETTLE_S
    while True:
        status = serve.status().applications[APP_NAME]
        missing = {name: each for name, each in status.deployments.items() if each.status != "HEALTHY"}
        faults = {name: fault for name in missing if (fault := ray_internals.start_fault(missing[name].message))}
        if status.status == "RUNNING":
            return {}
        if time.monotonic() > settled_at:
            failed = [name for name, each in missing.items() if each.status in _FAILED and name not in models]
            if failed or (status.status == "DEPLOY_FAILED" and not missing):
                raise RuntimeError(status.message)
            if missing and faults.keys() == missing.keys() <= set(models):
                return faults
        time.sleep(_POLL_PERIOD_S)


def remove_application() -> bool:
    """Removes the application after its running tasks have ended. Returns False if it was not deployed."""
    if APP_NAME not in serve.status().applications:
        return False
    serve.delete(APP_NAME)
    return True
