"""Access to Ray's private API, in this module alone; a test fails when Ray changes it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

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
    """Replicas of a deployment of the same version stay as they are when it is run again.

    Ray's decorator takes no version any more, since a `serve deploy` sets its own; what is run keeps it.
    """
    return deployment.options(version=version, _internal=True)


def http_address() -> tuple[str, int] | None:
    """Where Serve listens on this cluster, None where it does not run."""
    client = _get_global_client(raise_if_no_controller_running=False)
    return None if client is None else (client.http_config.host or "", client.http_config.port)


_FAILED_TO_START: Final = "failed to start"


def start_fault(message: str) -> ModelFault | None:
    """Returns why the last replica of a deployment failed to start, by what Serve says of it."""
    return find_fault(message) if _FAILED_TO_START in message else None


def count_replicas(application: str) -> dict[str, ReplicaCounts]:
    """Of each deployment of an application, in one call of the controller; none where Serve does not run.

    `serve.status()` makes the same call, but leaves out targets and bounds.
    """
    client = _get_global_client(raise_if_no_controller_running=False)
    details = {} if client is None else client.get_serve_details()["applications"].get(application, {})
    return {name: _count(deployment) for name, deployment in details.get("deployments", {}).items()}


def _count(deployment: Mapping[str, Any]) -> ReplicaCounts:
    scaling = deployment["deployment_config"].get("autoscaling_config")
    # Members of an enumeration, which is text only by inheritance.
    states = Counter(str(getattr(each["state"], "value", each["state"])) for each in deployment["replicas"])
    is_missing = deployment["target_num_replicas"] and not states["RUNNING"]
    return ReplicaCounts(
        states=states,
        target=deployment["target_num_replicas"],
        bounds=(scaling["min_replicas"], scaling["max_replicas"]) if scaling else None,
        fault=start_fault(deployment["message"]) if is_missing else None,
    )


def list_serve_actors(within_s: float) -> Iterator[tuple[str, Any]]:
    """The controller and the proxies, by name; none where Serve does not run."""
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return
    controller: Any = client._controller
    yield "controller", controller
    proxies: Any = ray.get(controller.get_proxies.remote(), timeout=within_s)
    for number, proxy in enumerate(proxies.values(), start=1):
        yield f"proxy {number}", proxy


def requires_token() -> bool:
    """Whether Ray's ports ask for a token."""
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    return is_token_auth_enabled()


def send_token_as_metadata() -> None:
    """Has this process's calls of replicas carry Ray's token themselves.

    Ray adds it by interceptors of grpc.aio, which run several tasks for each call: a third of what a call costs the
    caller. With TLS everything stays as it is.
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
def start_own_node() -> Iterator[None]:
    """A `ray.init` within it that starts a cluster starts an `OwnNode`: for this, Ray has no switch."""
    whole = node.Node
    node.Node = OwnNode
    try:
        yield
    finally:
        node.Node = whole


class ScalingDecision:
    """Ray Serve's decisions on a clock of one's own: factors, delays and bounds around what a policy wants."""

    def __init__(self, options: dict[str, Any], target: int) -> None:
        """`options` of `AutoscalingConfig`."""
        self._config = AutoscalingConfig(**options)
        self._target = target
        self._state: dict[str, Any] = {}

    def update(self, wanted: float, running: int, now: float) -> int:
        """The number of replicas aimed at from now on, `now` in seconds."""
        scaled = autoscaling_policy._apply_scaling_factors(wanted, running, self._config)
        bounded = max(self._config.min_replicas, min(self._config.max_replicas, scaled))
        self._target, self._state = autoscaling_policy._apply_delay_logic(
            bounded, self._target, self._config, self._state, now
        )
        return self._target
