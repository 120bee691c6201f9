from __future__ import annotations

import os
import time

import pytest

from benchmarks.processes import cpu_by_role, memory_by_role, role_of, spent


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("ray::ServeReplica:gen:Ingress   ", "ingress"),
        ("ray::ServeReplica:gen:Dispatcher", "dispatcher"),
        ("ray::ServeReplica:gen:flux3-klein", "model"),
        ("ray::ServeReplica:gen:Ingress.perform_graceful_shutdown", "ingress"),
        ("ray::ServeReplica:gen:flux-2.5", "model"),
        ("ray::ServeReplica:gen:Moderator", "moderator"),
        ("ray::ProxyActor", "proxy"),
        ("ray::HAProxyManager", "proxy"),
        ("/somewhere/bin/haproxy -db -f file", "proxy"),
        ("ray::ServeController.listen_for_change", "controller"),
        ("/somewhere/valkey-server 127.0.0.1:1", "redis"),
        ("python gen-serve up", "other"),
        ("", "other"),
    ],
)
def test_a_process_is_known_by_its_title(title: str, role: str) -> None:
    assert role_of(title) == role


def test_cpu_time_grows_with_work() -> None:
    before = cpu_by_role(os.getpid())
    busy_until = time.process_time() + 0.1
    while time.process_time() < busy_until:
        pass
    assert spent(before, cpu_by_role(os.getpid()))["other"] >= 0.05


def test_a_process_that_ended_in_between_is_no_negative_time() -> None:
    assert spent({"model": 3.0, "proxy": 1.0}, {"model": 1.0, "proxy": 1.5}) == {"model": 0.0, "proxy": 0.5}


def test_memory_is_that_of_the_whole_tree() -> None:
    assert memory_by_role(os.getpid())["other"] > 10
