"""What the figures of a service may ask while it is not there."""

from __future__ import annotations

import sys

from serve_app.config.settings import Settings
from serve_app.local.launcher import Launcher


async def test_nobody_asks_serve_for_replicas_before_the_service_runs() -> None:
    """It would start a Ray of its own."""
    loaded = "ray.serve" in sys.modules
    assert await Launcher(Settings())._replicas() == {}
    assert ("ray.serve" in sys.modules) == loaded
