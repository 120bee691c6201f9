"""A Ray cluster as the launcher begins it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.whole_service]

BEGUN = """
import ray
import psutil
from serve_app.ray_internals import begun_as_own

with begun_as_own():
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
print("answers:", ray.get(ray.remote(lambda: 42).remote()))
for process in psutil.Process().children(recursive=True):
    print(" ".join(process.cmdline()))
"""


def test_works_without_what_is_for_people() -> None:
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    begun = subprocess.run(
        [sys.executable, "-c", BEGUN], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert "answers: 42" in begun.stdout
    assert "raylet" in begun.stdout
    for left_out in ("log_monitor.py", "monitor.py", "dashboard.py"):
        assert left_out not in begun.stdout
