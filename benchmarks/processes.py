"""Processes of a service by role, with the CPU time they have used and the memory they hold."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

import psutil

Role: TypeAlias = Literal[
    "ingress", "proxy", "dispatcher", "webhooks", "moderator", "model", "redis", "controller", "other"
]
"""Purpose of a process; `other` is Ray itself and the process that started everything."""

_ACTORS: dict[str, Role] = {
    "ray::ServeReplica:gen:Ingress": "ingress",
    "ray::ServeReplica:gen:Dispatcher": "dispatcher",
    "ray::ServeReplica:gen:WebhookSender": "webhooks",
    "ray::ServeReplica:gen:Moderator": "moderator",
    "ray::ProxyActor": "proxy",
    "ray::HAProxyManager": "proxy",
    "ray::ServeController": "controller",
}
_PROGRAMS: dict[str, Role] = {"haproxy": "proxy", "valkey-server": "redis"}


def process_role(title: str) -> Role:
    """Returns the role of a process with this title, as `ps` shows it."""
    executable = title.split(maxsplit=1)[0] if title.strip() else ""
    for actor, role in _ACTORS.items():
        # Ray appends the method that runs at the moment.
        if executable == actor or executable.startswith(f"{actor}."):
            return role
    if executable.startswith("ray::ServeReplica:"):
        return "model"
    return _PROGRAMS.get(executable.rpartition("/")[2], "other")


def tree(root: int) -> list[psutil.Process]:
    """Returns the process `root` and its descendants."""
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]


def cpu_by_role(root: int) -> dict[Role, float]:
    """Returns the CPU seconds, user and system, that the running processes have used since they started."""
    seconds: dict[Role, float] = defaultdict(float)
    for role, process in _running(root):
        times = process.cpu_times()
        seconds[role] += times.user + times.system
    return dict(seconds)


def memory_by_role(root: int) -> dict[Role, float]:
    """Returns the proportional set size in MiB: pages that several processes share are divided among them."""
    mib: dict[Role, float] = defaultdict(float)
    for role, process in _running(root):
        mib[role] += process.memory_full_info().pss / 2**20
    return dict(mib)


def spent(before: dict[Role, float], after: dict[Role, float]) -> dict[Role, float]:
    """Returns the CPU seconds per role between two snapshots, at least zero: a process may have ended in between."""
    return {role: max(0.0, after[role] - before.get(role, 0.0)) for role in after}


def stop(roots: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
    """Terminates processes, waits for them, and kills those of their trees that are left."""
    family = [process for root in roots if root.poll() is None for process in tree(root.pid)]
    for root in roots:
        root.terminate()
    psutil.wait_procs([psutil.Process(root.pid) for root in roots if root.poll() is None], timeout_s)
    for straggler in psutil.wait_procs(family, timeout=5)[1]:
        with suppress(psutil.NoSuchProcess):
            straggler.kill()
    for root in roots:
        root.wait()


def _running(root: int) -> Iterator[tuple[Role, psutil.Process]]:
    for process in tree(root):
        try:
            yield process_role(" ".join(process.cmdline())), process
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
