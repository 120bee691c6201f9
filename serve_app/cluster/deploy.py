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

_ANSWERS_WITHIN_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.1
_SETTLES_S: Final = 2.0
_FAILED: Final = ("DEPLOY_FAILED", "UNHEALTHY")
_PROXIES: Final = {"head": ProxyLocation.HeadOnly, "every_node": ProxyLocation.EveryNode}


class ClusterUnreachable(RuntimeError):
    """Ray gave up on reaching the cluster."""


@contextmanager
def connect(address: str) -> Iterator[None]:
    """Within it this process is a driver of the cluster. Raises ClusterUnreachable, or ValueError for another token."""
    _check_reachable(address)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    try:
        # Serve's own namespace: its controller is looked for there.
        ray.init(address=address, namespace="serve", log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError:
        raise ValueError(
            "the Ray cluster at ray.address has another token than this process, or there is none here: set "
            "RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to the one its nodes have (docs/settings.md)"
        ) from None
    except Exception as problem:
        raise ClusterUnreachable(f"the Ray cluster at {address} is out of reach: {problem}") from problem
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Where nobody listens, Ray would go on trying for many minutes."""
    match = re.fullmatch(r"\[?([^\[\]/]+?)\]?:(\d+)", address)
    if match is None:  # `auto`, say: Ray finds out where that is
        return
    try:
        socket.create_connection((match[1], int(match[2])), timeout=_ANSWERS_WITHIN_S).close()
    except OSError as problem:
        raise ClusterUnreachable(f"nobody listens at ray.address, {address}: {problem.strerror or problem}") from None


def listen_everywhere(settings: Settings) -> str | None:
    """Has Serve listen where `settings` say, if none runs yet.

    One that runs is left as it is, since restarting it would stop everybody's applications. Returns what there is to
    say when it listens elsewhere. Raises RuntimeError where it can't listen.
    """
    host, port = settings.service.host, settings.service.port
    there = ray_internals.http_address()
    if there is None:
        try:
            serve.start(
                http_options=HTTPOptions(host=host, port=port), proxy_location=_PROXIES[settings.service.proxies]
            )
        except RayTaskError as problem:
            raise RuntimeError(f"Serve does not listen on {host}:{port}: {str(problem.cause).strip()}") from None
        return None
    if there == (host, port):
        return None
    return (
        f"Serve runs on this cluster already and listens on {there[0]}:{there[1]}: service.host and service.port, "
        f"{host}:{port}, are not what clients reach"
    )


def deploy_application(application: serve.Application, models: Collection[str]) -> dict[str, ModelFault]:
    """Returns once all of it runs, but for those of `models` that can't be loaded, by their names. These are tried
    again. What is there of the same version stays. Raises RuntimeError where anything else fails."""
    target = serve.RunTarget(application, name=APP_NAME, route_prefix="/")
    serve.run_many([target], wait_for_applications_running=False)
    # Until the controller has looked at them, deployments have the state from before.
    settled = time.monotonic() + _SETTLES_S
    while True:
        status = serve.status().applications[APP_NAME]
        missing = {name: each for name, each in status.deployments.items() if each.status != "HEALTHY"}
        faults = {name: fault for name in missing if (fault := ray_internals.start_fault(missing[name].message))}
        if status.status == "RUNNING":
            return {}
        if time.monotonic() > settled:
            failed = [name for name, each in missing.items() if each.status in _FAILED and name not in models]
            if failed or (status.status == "DEPLOY_FAILED" and not missing):
                raise RuntimeError(status.message)
            if missing and faults.keys() == missing.keys() <= set(models):
                return faults
        time.sleep(_LOOK_EVERY_S)


def remove_application() -> bool:
    """Takes the application off the cluster, in order: what has begun is finished. Returns whether it was there."""
    if APP_NAME not in serve.status().applications:
        return False
    serve.delete(APP_NAME)
    return True
