"""The processes of a setup: what each is for, the CPU time they have used, the memory they hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, TypeAlias

import psutil

Role: TypeAlias = Literal[
    "ingress", "proxy", "dispatcher", "webhooks", "moderator", "model", "redis", "controller", "other"
]
"""`other` is what Ray itself needs, and the process that started everything."""

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
    """The role of a process by its title, the way `ps` shows it."""
    executable = title.split(maxsplit=1)[0] if title.strip() else ""
    for start, role in _ACTORS.items():
        # Ray appends the method that runs at the moment.
        if executable == start or executable.startswith(f"{start}."):
            return role
    if executable.startswith("ray::ServeReplica:"):
        return "model"
    return _PROGRAMS.get(executable.rpartition("/")[2], "other")


def tree(root: int) -> list[psutil.Process]:
    """The process `root` and everything below it."""
    top = psutil.Process(root)
    return [top, *top.children(recursive=True)]


def cpu_by_role(root: int) -> dict[Role, float]:
    """CPU seconds, user and system, that the processes alive now have used since they started."""
    seconds: dict[Role, float] = defaultdict(float)
    for role, process in _living(root):
        times = process.cpu_times()
        seconds[role] += times.user + times.system
    return dict(seconds)


def memory_by_role(root: int) -> dict[Role, float]:
    """MiB of proportional set size: pages that several processes share are divided among them."""
    mib: dict[Role, float] = defaultdict(float)
    for role, process in _living(root):
        mib[role] += process.memory_full_info().pss / 2**20
    return dict(mib)


def spent(before: dict[Role, float], after: dict[Role, float]) -> dict[Role, float]:
    """CPU seconds per role between two snapshots. A role that lost a process in between counts as nothing."""
    return {role: max(0.0, after[role] - before.get(role, 0.0)) for role in after}


def _living(root: int) -> Iterator[tuple[Role, psutil.Process]]:
    for process in tree(root):
        try:
            title = " ".join(process.cmdline())
            yield process_role(title), process
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
