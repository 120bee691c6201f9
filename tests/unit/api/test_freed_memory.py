"""What large bodies took goes back to the system, though smaller things that came after them stay."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's own")

SCRIPT = """
import resource
import sys
from pathlib import Path
from serve_app.api.memory import tune_malloc

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 2**20

if sys.argv[1] == "given back":
    tune_malloc()
bytearray(31 * 2**20)  # as large as glibc goes in keeping what is freed
before, stay = resident_mb(), []
bodies = []
for _ in range(20):
    bodies.append(b"x" * (16 * 2**20))
    stay.append([bytes(600) for _ in range(100)])
held = resident_mb() - before
del bodies
print(held, resident_mb() - before)
"""


def measure_retained_mb(how: str) -> int:
    """Of 320 MB that a process of its own let go, MiB."""
    result = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    peak_mb, retained_mb = map(int, result.stdout.split())
    assert peak_mb >= 300
    return retained_mb


def test_freed_blocks_go_back_to_the_system_and_would_not_by_themselves() -> None:
    assert measure_retained_mb("given back") < 32 < 150 < measure_retained_mb("by itself")
