"""Python imports this when it starts, in every process that has this folder on its path.

A process tells a wrong time for as long as `$CHAOS_CLOCKS` has a file with its pid for a name: off by the seconds that
stand there. It makes `<pid>.heard` when it has read them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_LOOK_EVERY_S = 0.1


class _Clock:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._true = time.time
        self._off_s = 0.0
        self._looked = float("-inf")

    def __call__(self) -> float:
        if time.monotonic() - self._looked > _LOOK_EVERY_S:
            self._looked = time.monotonic()
            self._off_s = self._told()
        return self._true() + self._off_s

    def _told(self) -> float:
        told = self._folder / str(os.getpid())
        try:
            off_s = float(told.read_text())
        except FileNotFoundError:
            return 0.0
        told.with_suffix(".heard").touch()
        return off_s


if _folder := os.environ.get("CHAOS_CLOCKS"):
    time.time = _Clock(Path(_folder))
