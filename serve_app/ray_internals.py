"""The only module that uses Ray's private API. A test fails when Ray changes it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import ray
from ray import serve
from ray._private import node
from ray._private.authentication.grpc_authentication_client_interceptor import _get_authentication_metadata_tuple
from ray.serve import autoscaling_policy
from ray.serve._private.request_router import replica_wrapper
from ray.serve.config import AutoscalingConfig
from ray.serve.context import _get_global_client
from ray.serve.generated.serve_pb2_grpc import ASGIServiceStub

from deployments.contract.counts import ReplicaCounts
from deployments.contract.model_fault import ModelFault, find_fault


def with_version(deployment: serve.Deployment, version: str) -> serve.Deployment:
    """Sets the version: Serve keeps the replicas of a deployment whose version did not change.

    Ray's public decorator no longer accepts it, since `serve deploy` sets its own; `serve.run` still honours it.
    """
    return deployment.options(version=version, _internal=True)


def http_address() -> tuple[str, int] | None:
    """Returns the host and port that Serve listens on; None if it does not run."""
    client = _get_global_client(raise_if_no_controller_running=False)
    return None if client is None else (client.http_config.host or "", client.http_config.port)


def start_fault(message: str) -> ModelFault | None:
    """Finds in Serve's status message why the last replica of a deployment failed to start."""
    return find_fault(message) if "failed to start" in message else None


def count_replicas(application: str) -> dict[str, ReplicaCounts]:
    """Counts the replicas of each deployment of an application; empty if Serve does not run.

    It is one call of the controller. `serve.status()` makes the same one, but omits targets and bounds.
    """
    client = _get_global_client(raise_if_no_controller_running=False)
    details = {} if client is None else client.get_serve_details()["applications"].get(application, {})
    return {name: _count(deployment) for name, deployment in details.get("deployments", {}).items()}


def _count(deployment: Mapping[str, Any]) -> ReplicaCounts:
    scaling = deployment["deployment_config"].get("autoscaling_config")
    # The state is an enum whose `str` is not its value.
    states = Counter(str(getattr(each["state"], "value", each["state"])) for each in deployment["replicas"])
    is_missing = deployment["target_num_replicas"] and not states["RUNNING"]
    return ReplicaCounts(
        states=states,
        target=deployment["target_num_replicas"],
        bounds=(scaling["min_replicas"], scaling["max_replicas"]) if scaling else None,
        fault=start_fault(deployment["message"]) if is_missing else None,
    )


def list_serve_actors(within_s: float) -> Iterator[tuple[str, Any]]:
    """Yields the controller and the proxies by name; nothing if Serve does not run."""
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return
    controller: Any = client._controller
    yield "controller", controller
    proxies: Any = ray.get(controller.get_proxies.remote(), timeout=within_s)
    for number, proxy in enumerate(proxies.values(), start=1):
        yield f"proxy {number}", proxy


def requires_token() -> bool:
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    return is_token_auth_enabled()


def send_token_as_metadata() -> None:
    """Makes this process send Ray's token as plain metadata of its calls to replicas.

    Ray adds the token by interceptors of grpc.aio. They run several tasks per call, a third of the caller's cost. With
    TLS nothing is changed.
    """
    if not requires_token() or os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return
    metadata = _get_authentication_metadata_tuple()

    class Stub:
        def __init__(self, channel: Any) -> None:
            for name, method in vars(ASGIServiceStub(channel)).items():
                setattr(self, name, partial(method, metadata=metadata))

    def open_channel(address: str, options: Any = None, asynchronous: bool = False) -> Any:
        assert asynchronous
        return grpc.aio.insecure_channel(address, options=options)

    replica_wrapper.__dict__.update(init_grpc_channel=open_channel, ASGIServiceStub=Stub)


class OwnNode(node.Node):
    """The single node of a cluster that runs only this service, without Ray's auxiliary processes.

    Each of the three costs half a second of CPU at start and some 50 MiB, and this service uses none of them.
    """

    def start_monitor(self) -> None:
        """No-op: the autoscaler of nodes has nothing to do in a cluster of one node."""

    def start_log_monitor(self) -> None:
        """No-op: it copies the workers' output to the driver, which ignores it. Ray's log files do not need it."""

    def start_api_server(self, **_: Any) -> None:
        """No-op: it serves Ray's dashboard. Ray would start it even with `include_dashboard=False`."""


@contextmanager
def start_own_node() -> Iterator[None]:
    """Makes `ray.init` start an `OwnNode`; Ray has no option for it."""
    original = node.Node
    node.Node = OwnNode
    try:
        yield
    finally:
        node.Node = original


class ScalingDecision:
    """Ray Serve's autoscaling decision on a virtual clock: factors, delays and bounds around a policy's wish."""

    def __init__(self, options: dict[str, Any], target: int) -> None:
        """`options` of `AutoscalingConfig`."""
        self._config = AutoscalingConfig(**options)
        self._target = target
        self._state: dict[str, Any] = {}

    def update(self, wanted: float, running: int, now: float) -> int:
        """Returns the new target number of replicas; `now` in seconds."""
        scaled = autoscaling_policy._apply_scaling_factors(wanted, running, self._config)
        bounded = max(self._config.min_replicas, min(self._config.max_replicas, scaled))
        self._target, self._state = autoscaling_policy._apply_delay_logic(
            bounded, self._target, self._config, self._state, now
        )
        return self._target
