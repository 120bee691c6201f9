"""A cluster that others started, asked from inside its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.whole_service]

LOOKED = """
import json, sys
from pathlib import Path

import ray

from serve_app.config import settings
from serve_app.config.replicas import complete
from serve_app.launcher.ray_flags import FLAGS
from serve_app.cluster import cluster, report

cluster._WITHIN_S = 60.0

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
found = report.look(complete(settings.load(Path(sys.argv[1]))), FLAGS)
print(json.dumps([report.may_serve(found), {each.what: [each.verdict, each.told] for each in found}]))
"""


@pytest.fixture
def config(tmp_path: Path, repository: Path, redis_url: str) -> Path:
    written = {"data_dir": str(tmp_path / "data"), "catalog": str(repository / "configs/catalog.yaml")}
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({**written, "redis": {"url": redis_url}}))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/sealing-key").write_text("A" * 43 + "=")
    return path


@pytest.mark.parametrize(("mode", "asked"), [("disabled", "warning"), ("token", "fine")])
def test_nodes_tell_what_they_lack(config: Path, mode: str, asked: str) -> None:
    environment = os.environ | {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": "0" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
    looked = subprocess.run(
        [sys.executable, "-c", LOOKED, str(config)], env=environment, capture_output=True, text=True, timeout=180
    )
    assert looked.returncode == 0, looked.stderr
    may_serve, found = json.loads(looked.stdout.splitlines()[-1])
    assert not may_serve, "the node was started without the switches"
    assert found["Ray's token"][0] == asked
    for name in ("secrets", "release", "Redis", "persistence", "object store", "clock"):
        assert found[name][0] == "fine", found[name]
