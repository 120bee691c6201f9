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


def role_of(title: str) -> Role:
    """The role of a process by its title, the way `ps` shows it."""
    program = title.split(maxsplit=1)[0] if title.strip() else ""
    for start, role in _ACTORS.items():
        # Ray appends the method that runs at the moment.
        if program == start or program.startswith(f"{start}."):
            return role
    if program.startswith("ray::ServeReplica:"):
        return "model"
    return _PROGRAMS.get(program.rpartition("/")[2], "other")


def tree(root: int) -> list[psutil.Process]:
    """The process `root` and everything below it."""
    top = psutil.Process(root)
    return [top, *top.children(recursive=True)]


def cpu_by_role(root: int) -> dict[Role, float]:
    """CPU seconds, user and system, that the processes alive now have used since they started."""
    used: dict[Role, float] = defaultdict(float)
    for role, process in _living(root):
        times = process.cpu_times()
        used[role] += times.user + times.system
    return dict(used)


def memory_by_role(root: int) -> dict[Role, float]:
    """MiB of proportional set size: pages that several processes share are divided among them."""
    held: dict[Role, float] = defaultdict(float)
    for role, process in _living(root):
        held[role] += process.memory_full_info().pss / 2**20
    return dict(held)


def spent(before: dict[Role, float], after: dict[Role, float]) -> dict[Role, float]:
    """CPU seconds per role between two snapshots. A role that lost a process in between counts as nothing."""
    return {role: max(0.0, after[role] - before.get(role, 0.0)) for role in after}


def _living(root: int) -> Iterator[tuple[Role, psutil.Process]]:
    for process in tree(root):
        try:
            title = " ".join(process.cmdline())
            yield role_of(title), process
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
