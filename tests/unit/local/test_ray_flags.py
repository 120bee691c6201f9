"""What Ray is told by the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from serve_app.launcher import ray_flags

RAYS_FIGURES = "RAY_enable_metrics_collection"


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            del os.environ[name]
        yield


def test_rays_processes_ask_for_a_token() -> None:
    ray_flags.apply()
    assert os.environ["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize("mode", ["disabled", ""])
def test_nobody_turns_that_off_by_the_way(mode: str) -> None:
    os.environ["RAY_AUTH_MODE"] = mode
    with pytest.raises(ValueError, match=r"RAY_AUTH_MODE is .* Unset it"):
        ray_flags.apply()


def test_other_switches_of_the_environment_stay() -> None:
    os.environ["RAY_SERVE_HAPROXY_NBTHREAD"] = "4"
    ray_flags.apply()
    assert os.environ["RAY_SERVE_HAPROXY_NBTHREAD"] == "4"


def test_a_cluster_that_is_joined_keeps_its_addresses_and_its_figures() -> None:
    ray_flags.apply()
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ
    assert RAYS_FIGURES not in os.environ


def test_the_figures_of_an_own_one_can_be_asked_for(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ, {RAYS_FIGURES: "1"}):
        ray_flags.apply_to_own(tmp_path, "127.0.0.1", tmp_path / "token")
        assert os.environ[RAYS_FIGURES] == "1"


def test_serve_reads_the_switches_of_an_own_one(tmp_path: Path) -> None:
    ray_flags.apply_to_own(tmp_path, "127.0.0.1", tmp_path / "token")
    read = (
        "from ray.serve._private import constants as known;"
        "print(known.CONTROL_LOOP_INTERVAL_S, known.RAY_SERVE_METRICS_EXPORT_INTERVAL_MS)"
    )
    told = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split() == ["0.2", "1000"]


def test_the_proxy_of_an_own_one_serves_on_the_services_host(tmp_path: Path) -> None:
    ray_flags.apply_to_own(tmp_path, "192.0.2.1", tmp_path / "token")
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")
    assert "--bind 192.0.2.1 " in Path(os.environ["RAY_SERVE_HAPROXY_BINARY_PATH"]).read_text()
