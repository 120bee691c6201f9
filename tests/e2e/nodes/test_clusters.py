"""The launcher's own Ray cluster, and deployments on clusters that others started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from serve_app.launcher.embedded_redis import free_port

pytestmark = [pytest.mark.slow, pytest.mark.whole_service]

START_SCRIPT = """
import sys

import psutil
import ray
from serve_app.cluster import deploy
from serve_app.config.settings import Settings
from serve_app.ray_internals import start_own_node

with start_own_node():
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
print("answers:", ray.get(ray.remote(lambda: 42).remote()))
for process in psutil.Process().children(recursive=True):
    print(" ".join(process.cmdline()))
try:
    deploy.listen_everywhere(Settings(service={"port": int(sys.argv[1])}))
except RuntimeError as problem:
    print("report:", problem)
"""
CHECK_SCRIPT = """
import json, sys
from pathlib import Path

import ray

from serve_app.config import settings
from serve_app.config.replicas import complete
from serve_app.launcher.ray_flags import FLAGS
from serve_app.cluster import preflight

preflight._CLUSTER_WITHIN_S = 60.0

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
found = preflight.check_everything(complete(settings.load(Path(sys.argv[1]))), FLAGS)
print(json.dumps([preflight.may_serve(found), {each.what: [each.verdict, each.message] for each in found}]))
"""
TOKEN_SCRIPT = """
from serve_app.cluster.checks.proxy import check_token

print(check_token().verdict)
"""
DEPLOY_SCRIPT = """
import json, sys, uuid

import ray
from ray import serve

from serve_app import ray_internals
from serve_app.cluster import deploy
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
report = {"not there": ray_internals.http_address(), "actors": len(list(ray_internals.list_serve_actors(5)))}
report["not yet"] = deploy.listen_everywhere(Settings(service={"port": port, "proxies": "head"}))
serve.run(part("Theirs", "1"), name="theirs", route_prefix="/theirs")
report["same port"] = deploy.listen_everywhere(Settings(service={"port": port}))
report["other port"] = deploy.listen_everywhere(Settings(service={"port": 8000}))
report["served by"] = [name for name, _ in ray_internals.list_serve_actors(5)]
for name, version in (("first", "1"), ("again", "1"), ("changed", "2")):
    deploy.deploy_application(whole(version), ())
    report[name] = replicas()
report["removed"] = [deploy.remove_application(), deploy.remove_application()]
report["left"] = sorted(serve.status().applications)
print(json.dumps(report))
serve.shutdown()
"""


def run_script(script: str, *words: str, **environment: str) -> str:
    """Runs a script with its own cluster. Returns its output."""
    usual = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    usual |= dict.fromkeys(("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"), "60")
    command, env = [sys.executable, "-c", script, *words], os.environ | usual | environment
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_own_cluster_has_no_dashboard_and_reports_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        output = run_script(START_SCRIPT, port)
    assert "answers: 42" in output
    assert "raylet" in output
    for process_name in ("log_monitor.py", "monitor.py", "dashboard.py"):
        assert process_name not in output
    problem = next(line for line in output.splitlines() if line.startswith("report:"))
    assert problem.startswith(f"report: Serve does not listen on 127.0.0.1:{port}: ")
    assert "ray::" not in problem


def test_preflight_reports_missing_flags_of_a_node(tmp_path: Path, repository: Path, redis_url: str) -> None:
    config = tmp_path / "config.yaml"
    (tmp_path / "data").mkdir()
    (tmp_path / "data/sealing-key").write_text("A" * 43 + "=")
    values = {"data_dir": str(tmp_path / "data"), "catalog": str(repository / "configs/catalog.yaml")}
    config.write_text(json.dumps({**values, "redis": {"url": redis_url}}))
    output = run_script(CHECK_SCRIPT, str(config), RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
    may_serve, verdicts = json.loads(output.splitlines()[-1])
    assert not may_serve, "the node lacks the flags"
    for name in ("Ray's token", "secrets", "release", "Redis", "persistence", "object store", "clock"):
        assert verdicts[name][0] == "fine", verdicts[name]
    assert run_script(TOKEN_SCRIPT).strip() == "warning", "nodes without a token"


def test_deploy_restarts_only_changed_deployments() -> None:
    report = json.loads(
        next(line for line in run_script(DEPLOY_SCRIPT, str(free_port())).splitlines() if line.startswith("{"))
    )
    assert [report[name] for name in ("not there", "actors", "not yet", "same port")] == [None, 0, None, None]
    assert "listens on 127.0.0.1:" in report["other port"]
    assert report["served by"] == ["controller", "proxy 1"]
    assert report["again"] == report["first"]
    assert report["changed"]["Ingress"] == report["first"]["Ingress"]
    assert report["changed"]["model"] != report["first"]["model"]
    assert (report["removed"], report["left"]) == ([True, False], ["theirs"])
