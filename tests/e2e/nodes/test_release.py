"""A deployment of the application beside another one, on a cluster that others started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from serve_app.local.free_ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.whole_service]

ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}
BESIDE = """
import json, sys
from dataclasses import dataclass

import ray
from ray import serve

from serve_app.cluster import changes, release
from serve_app.config.settings import Settings

@dataclass
class Spec:
    steps: int

class Holder:
    def __init__(self, *bound):
        self.bound = bound

def part(name, version, *bound, **options):
    chosen = {"name": name, "ray_actor_options": {"num_cpus": 0}, "graceful_shutdown_timeout_s": 40, **options}
    return serve.deployment(**chosen)(Holder).options(version=version, _internal=True).bind(*bound)

def whole(steps=4, replicas=1, secrets="s", apart=None, **further):
    options = {"num_replicas": replicas, "max_replicas_per_node": apart}
    model = part("model", f"c.{steps}.{secrets}.r", Spec(steps), **options)
    return part("Ingress", "c.x.s.r", model, *(part(name, "c.x.s.r") for name in further))

def planned(application):
    return {each.deployment: [each.kind, *each.why] for each in changes.changes(application)}

port = int(sys.argv[1])
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
told = {"nothing there": planned(whole())}
told["not yet"] = release.listen(Settings(service={"port": port, "proxies": "head"}))
serve.run(part("Theirs", "1"), name="theirs", route_prefix="/theirs")
told["same port"] = release.listen(Settings(service={"port": port}))
told["other port"] = release.listen(Settings(service={"port": 8000}))
release.deploy(whole(further=1))
told["the same"] = planned(whole(further=1))
told["changed"] = planned(whole(steps=5))
told["other secret"] = planned(whole(secrets="t", further=1))
told["apart"] = planned(whole(apart=1, further=1))
told["more"] = planned(whole(replicas=2, further=1))
told["removed"] = [release.remove(), release.remove()]
told["left"] = sorted(serve.status().applications)
print(json.dumps(told))
serve.shutdown()
"""

TAKEN = """
import sys

import ray

from serve_app.cluster import release
from serve_app.config.settings import Settings

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
try:
    release.listen(Settings(service={"port": int(sys.argv[1])}))
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
    assert told["nothing there"] == {"Ingress": ["new"], "model": ["new"]}
    assert told["not yet"] is None
    assert told["same port"] is None
    assert "listens on 127.0.0.1:" in told["other port"]
    assert {kind for kind, *_ in told["the same"].values()} == {"stays"}
    assert told["changed"]["model"] == ["restarts", "settings: steps 4 -> 5"]
    assert told["changed"]["Ingress"] == ["stays"]
    assert told["changed"]["further"][0] == "goes"
    assert told["other secret"]["model"] == ["restarts", "secrets"]
    assert told["apart"]["model"] == ["restarts", "max_per_node unset -> 1"]
    assert told["more"]["model"] == ["changes in place", "num_replicas 1 -> 2"]
    assert told["removed"] == [True, False]
    assert told["left"] == ["theirs"]
