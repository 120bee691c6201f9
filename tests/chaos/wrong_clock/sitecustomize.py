"""Python imports this when it starts, in every process that has this folder on its path.

A process tells a wrong time for as long as `$CHAOS_CLOCKS` has a file with its pid for a name: off by the seconds that
stand there. It makes `<pid>.heard` when it has read them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path


class _Clock:
    def __init__(self, folder: Path) -> None:
        self._folder, self._true = folder, time.time
        self._off_s, self._looked = 0.0, float("-inf")

    def __call__(self) -> float:
        if time.monotonic() - self._looked > 0.1:
            self._looked, offset_file = time.monotonic(), self._folder / str(os.getpid())
            try:
                self._off_s = float(offset_file.read_text())
                offset_file.with_suffix(".heard").touch()
            except FileNotFoundError:
                self._off_s = 0.0
        return self._true() + self._off_s


if _folder := os.environ.get("CHAOS_CLOCKS"):
    time.time = _Clock(Path(_folder))
