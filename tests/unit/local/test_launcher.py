"""What the figures of a service may ask while it is not there."""

from __future__ import annotations

import subprocess
import sys

from serve_app.config.settings import Settings
from serve_app.launcher.launcher import Launcher


async def test_nobody_asks_serve_for_replicas_before_the_service_runs() -> None:
    """It would start a Ray of its own."""
    loaded = "ray.serve" in sys.modules
    assert await Launcher(Settings())._replicas() == {}
    assert ("ray.serve" in sys.modules) == loaded


def test_ray_is_imported_after_its_flags_are_set() -> None:
    """It reads them when it is imported; the launcher imports it late."""
    code = "import sys, serve_app.launcher.launcher, serve_app.cli.cluster; print('ray' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "False"
