"""A Ray cluster that others started, with its authentication and without."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

JOINED = """
import ray
from serve_app.local.cluster_auth import open_nodes

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
print("open:", len(open_nodes()))
"""


@pytest.mark.parametrize(("mode", "nodes"), [("disabled", 1), ("token", 0)])
def test_nodes_that_ask_for_no_token_are_known(mode: str, nodes: int) -> None:
    environment = os.environ | {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": "0" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
    joined = subprocess.run(
        [sys.executable, "-c", JOINED], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert f"open: {nodes}" in joined.stdout
