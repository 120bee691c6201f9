"""Prometheus' own check of rules and figures, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

import pytest

PROMTOOL: Final = shutil.which("promtool")


def promtool(*words: str, text: str = "") -> str:
    """What it says; it must be content. Skips the test where there is none."""
    if PROMTOOL is None:
        pytest.skip("no promtool here: it is in Debian's package prometheus")
    result = subprocess.run([PROMTOOL, *words], input=text, capture_output=True, text=True, timeout=120)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    return output
