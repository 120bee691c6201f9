"""A yardstick in a process of its own: lines of requests in, a line of what was done out, until the end of input.

It stays loaded between rounds, so that rounds can alternate with the service's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

from benchmarks.service import PROJECT, without_settings
from benchmarks.work import Work

Request: TypeAlias = dict[str, Any]
"""`prompt`, `width`, `height`, `steps`, `seed`, `output_format`: a body that the service's text-to-image takes."""


@dataclass(frozen=True, slots=True)
class Done:
    """One round: seconds from the first request to the last file, and what was made, in the order of requests."""

    seconds: float
    files: list[Path]
    work: list[Work]


class BareProcess:
    """`python -m benchmarks.bare_…` with its arguments. A context manager; inside it the model is loaded."""

    def __init__(self, module: str, checkpoint: str, threads: int) -> None:
        self._command = [sys.executable, "-m", module, checkpoint, str(threads)]
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="gen-bench-")
        self._process = subprocess.Popen(
            [*self._command, self._folder.name],
            cwd=PROJECT,
            env=without_settings(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._folder is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def make(self, requests: Sequence[Request]) -> Done:
        assert self._process is not None
        assert self._process.stdin is not None
        print(json.dumps(requests), file=self._process.stdin, flush=True)
        said = json.loads(self._answer())
        return Done(said["seconds"], list(map(Path, said["files"])), list(map(Work.from_json, said["work"])))

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._command[2]} died")
        return line


Making: TypeAlias = Callable[[Sequence[Request], Path], tuple[list[Path], list[Work]]]
"""Makes the pictures of all requests into a folder."""


def serve(load: Callable[[str, int, Path], Making]) -> None:
    """The other end, in the process: arguments are the checkpoint, the threads and the folder for pictures."""
    checkpoint, threads, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    make = load(checkpoint, threads, folder)
    print("loaded", flush=True)
    for number, line in enumerate(sys.stdin):
        into = folder / str(number)
        into.mkdir()
        began = time.perf_counter()
        files, work = make(json.loads(line), into)
        done = {"seconds": time.perf_counter() - began, "files": list(map(str, files)), "work": list(map(asdict, work))}
        print(json.dumps(done), flush=True)
