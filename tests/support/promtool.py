"""Runs Prometheus' own checks, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

import pytest

PROMTOOL: Final = shutil.which("promtool")


def promtool(*words: str, text: str = "") -> str:
    """Returns promtool's output; it must succeed. Skips the test if it is not installed."""
    if PROMTOOL is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    result = subprocess.run([PROMTOOL, *words], input=text, capture_output=True, text=True, timeout=120)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    return output
