"""What is bound, and what binding it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ray.serve.config import AutoscalingConfig

from serve_app import application

BUILT = """
import sys
from pathlib import Path

from serve_app import application
from serve_app.config.settings import load

application.build(load(Path(sys.argv[1])))
print([name for name in ("torch", "diffusers", "transformers", "mcp", "serve_app.http.ingress") if name in sys.modules])
"""


def test_whoever_binds_it_imports_neither_models_nor_pages(repository: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-c", BUILT, str(repository / "configs/local.yaml")],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert built.stdout.strip() == "[]"


@pytest.mark.parametrize(("least", "most", "decided"), [(1, 1, False), (3, 3, False), (0, 1, True), (1, 2, True)])
def test_load_is_reported_where_it_decides_something(least: int, most: int, decided: bool) -> None:
    options = application._replicas(AutoscalingConfig(min_replicas=least, max_replicas=most))
    assert ("autoscaling_config" in options) is decided
    assert options.get("num_replicas") == (None if decided else most)
