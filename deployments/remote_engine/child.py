"""The engine's process: a child of the replica that is restarted when it dies and ends with the replica.

A supervisor between the two ends the engine and all its children when the pipe from the replica closes, which the
kernel does however the replica ends.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_SUPERVISOR: Final = """
import os, shutil, signal, subprocess, sys, threading
engine = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, start_new_session=True)
def end():
    os.read(0, 1)
    os.killpg(engine.pid, signal.SIGTERM)
    try:
        engine.wait(10)
    except subprocess.TimeoutExpired:
        pass
    finally:
        os.killpg(engine.pid, signal.SIGKILL)
threading.Thread(target=end, daemon=True).start()
code = engine.wait()
try:
    os.killpg(engine.pid, signal.SIGKILL)
except ProcessLookupError:
    pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
os._exit(code if code >= 0 else 128 - code)
"""
_SHELL: Final = 'exec 3<&0; "$@" <&3 & wait $!'
"""Runs between replica and supervisor, as Ray kills the children of a replica, but not their children."""
_OWN_VARIABLES: Final = ("RAY_", "GEN_")
"""Prefixes of this service's variables, which would make a child part of the service and its Ray cluster."""


class EngineProcess:
    def __init__(self, command: str) -> None:
        """Takes a command in which `{port}` stands for the port to listen on, and `{folder}` for `folder`."""
        self._command = command
        self.folder = Path()
        """Folder of the running process, which is empty at its start and removed at its end."""
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Ends the previous process, if any, and starts one at a new port, as remains of the old one may still answer.

        Raises OSError.
        """
        self.stop()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.folder = Path(tempfile.mkdtemp(prefix="engine-"))
        values = {"{port}": str(self.port), "{folder}": shlex.quote(str(self.folder))}
        command = shlex.split(re.sub(r"\{(?:port|folder)\}", lambda found: values[found.group()], self._command))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}
        environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        self._process = subprocess.Popen(
            ["sh", "-c", _SHELL, "sh", sys.executable, "-c", _SUPERVISOR, str(self.folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        threading.Thread(target=_log_output, args=(self._process,), name="engine-log", daemon=True).start()

    def stop(self) -> None:
        """Ends the process, by force after 10 seconds."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None


def _log_output(process: subprocess.Popen[bytes]) -> None:
    """Copies the engine's output to the replica's log."""
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            logger.info("engine: %s", line.decode(errors="replace").rstrip())
    logger.warning("the engine's process ended with status %s", process.wait())
