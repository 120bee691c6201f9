"""Weights on the nodes of a cluster: on one node, which others started with HF_HUB_OFFLINE for its replicas."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.hub_profile import NETWORK, Profiles
from support.model_hub import Hub

pytestmark = pytest.mark.slow

CLUSTER = """
import json, os, subprocess, sys

import ray

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
operator = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
operator["GEN_RAY__ADDRESS"] = ray.get_runtime_context().gcs_address

@ray.remote(num_cpus=0)
def is_offline():
    from huggingface_hub.constants import HF_HUB_OFFLINE
    return HF_HUB_OFFLINE

def weights(*words):
    command = [sys.executable, "-c", "from serve_app.cli import main; main()", "weights", *words, "--json"]
    ran = subprocess.run([*command, "--config", sys.argv[1]], env=operator, capture_output=True, text=True)
    return ran.returncode, json.loads(ran.stdout or "null"), ran.stderr

print(json.dumps([ray.get(is_offline.remote()), weights("fetch"), weights("list")]))
"""


def test_nodes_fetch_what_their_replicas_load(hub: Hub, profile: Profiles) -> None:
    lane = {"backend": "onnx", "checkpoint": NETWORK}
    machine = profile(
        {"here": lane, "elsewhere": {**lane, "checkpoint": "owner/large/model.onnx"}},
        models={"elsewhere": {"actor": {"num_gpus": 8}}},
    )
    ran = subprocess.run(
        [sys.executable, "-c", CLUSTER, str(machine.written())],
        env=machine.environment
        | {"HF_HUB_OFFLINE": "1", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    replica_is_offline, fetched, listed = json.loads(ran.stdout.splitlines()[-1])
    assert replica_is_offline, "a node's environment is that of its replicas"
    code, rows, errors = fetched
    assert code == 0, errors
    assert [(row["checkpoint"], row["state"]) for row in rows] == [("owner/network", "fetched")]
    assert rows[0]["where"].startswith("node ")
    assert "no node there now may run what loads these: owner/large/model.onnx" in errors
    by_checkpoint = {row["checkpoint"]: row for row in listed[1]}
    assert by_checkpoint[NETWORK]["there"] == rows[0]["where"]
    assert by_checkpoint["owner/large/model.onnx"]["missing"] == ""
    assert "onnx/model.onnx" in machine.files
