"""A deployment of the application beside another one, on a cluster that others started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from serve_app.launcher.embedded_redis import free_port

pytestmark = [pytest.mark.slow, pytest.mark.whole_service]

ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}
BESIDE = """
import json, sys, uuid

import ray
from ray import serve

from serve_app import ray_internals
from serve_app.cluster import application as cluster
from serve_app.config.settings import Settings

class Holder:
    def __init__(self, *bound):
        self.id = uuid.uuid4().hex

    def which(self):
        return self.id

def part(name, version, *bound):
    deployment = serve.deployment(name=name, ray_actor_options={"num_cpus": 0})(Holder)
    return ray_internals.with_version(deployment, version).bind(*bound)

def whole(model):
    return part("Ingress", "same", part("model", model))

def replicas():
    return {name: serve.get_deployment_handle(name, "gen").which.remote().result() for name in ("Ingress", "model")}

port = int(sys.argv[1])
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
told = {"not there": ray_internals.http_address(), "actors": len(list(ray_internals.actors_of_serve(5)))}
told["not yet"] = cluster.listen(Settings(service={"port": port, "proxies": "head"}))
serve.run(part("Theirs", "1"), name="theirs", route_prefix="/theirs")
told["same port"] = cluster.listen(Settings(service={"port": port}))
told["other port"] = cluster.listen(Settings(service={"port": 8000}))
told["served by"] = [name for name, _ in ray_internals.actors_of_serve(5)]
for name, version in (("first", "1"), ("again", "1"), ("changed", "2")):
    cluster.deploy(whole(version))
    told[name] = replicas()
told["removed"] = [cluster.remove(), cluster.remove()]
told["left"] = sorted(serve.status().applications)
print(json.dumps(told))
serve.shutdown()
"""

TAKEN = """
import sys

import ray

from serve_app.cluster import application as cluster
from serve_app.config.settings import Settings

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
try:
    cluster.listen(Settings(service={"port": int(sys.argv[1])}))
except RuntimeError as problem:
    print("told:", problem)
"""


def test_a_port_that_is_taken_is_told() -> None:
    environment = os.environ | ENVIRONMENT
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-c", TAKEN, port]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    told = next(line for line in ran.stdout.splitlines() if line.startswith("told:"))
    assert told.startswith(f"told: Serve does not listen on 127.0.0.1:{port}: ")
    assert "ray::" not in told


def test_only_what_changed_and_nothing_of_others_is_touched() -> None:
    environment = os.environ | ENVIRONMENT
    command = [sys.executable, "-c", BESIDE, str(free_port())]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("{")))
    assert (told["not there"], told["actors"]) == (None, 0)
    assert told["not yet"] is None
    assert told["same port"] is None
    assert "listens on 127.0.0.1:" in told["other port"]
    assert told["served by"] == ["controller", "proxy 1"]
    assert told["again"] == told["first"]
    assert told["changed"]["Ingress"] == told["first"]["Ingress"]
    assert told["changed"]["model"] != told["first"]["model"]
    assert told["removed"] == [True, False]
    assert told["left"] == ["theirs"]
