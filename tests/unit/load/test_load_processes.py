"""A whole load, in generator processes of its own."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter

import pytest
from support.http_service import serving
from support.known_server import KnownServer

from serve_app.load.mix import Endpoint, Mix, Tenant
from serve_app.load.plan import Load, Plan
from serve_app.load.run import GeneratorFailed, run
from serve_app.load.target import Target

MIX = Mix(
    endpoints=[Endpoint(endpoint="gen-any", references=1)], tenants=[Tenant(name="a"), Tenant(name="b", traffic=2)]
)


def plan(rate: float, seconds: float) -> Plan:
    return Load(MIX, "a mix", "gen", "constant", seconds, warm_up=0).at(rate, seed=1)


def target(base_url: str) -> Target:
    return Target(base_url=base_url, keys={"a": "key of a", "b": "key of b"}, poll_every=0.02)


@pytest.mark.parametrize("processes", [1, 3])
def test_every_request_is_sent_once_by_one_of_the_processes(processes: int) -> None:
    server = KnownServer("serve", "refuse", "serve", "fail")
    planned = plan(40, 1)
    heard: list[int] = []
    with serving(server.app) as base_url:
        ran = run(target(base_url), planned.requests, processes, lambda outcome: heard.append(outcome.number))
    assert [one.number for one in ran.outcomes] == list(range(40))
    assert sorted(heard) == list(range(40))
    assert Counter(one.end for one in ran.outcomes) == {"served": 20, "refused": 10, "failed": 10}
    assert [one.tenant for one in ran.outcomes] == [each.tenant for each in planned.requests]
    assert Counter(body["seed"] for body in server.bodies) == Counter(each.seed for each in planned.requests)
    keys = Counter(headers["x-key"] for headers in server.headers)
    assert keys == Counter(f"key of {each.tenant}" for each in planned.requests)
    assert len(ran.strains) == processes
    # Never early; event loops count in whole milliseconds.
    assert all(one.sent is not None and one.sent > one.intended - 0.005 for one in ran.outcomes)


def test_ctrl_c_ends_it_with_what_there_is() -> None:
    with serving(KnownServer().app) as base_url:

        def interrupt(_: object) -> None:
            # Once; in the thread that waits, as a terminal would.
            if not interrupted.is_set():
                interrupted.set()
                os.kill(os.getpid(), signal.SIGINT)

        interrupted = threading.Event()
        ran = run(target(base_url), plan(2, 3600).requests, 2, interrupt)
    assert ran.interrupted is not None
    assert 0 < len(ran.outcomes) < 100
    assert len(ran.strains) == 2


def test_a_process_that_dies_is_no_quiet_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.load.run.sys.executable", "/bin/false")
    with pytest.raises(GeneratorFailed, match="process 0 ended before it began"):
        run(target("http://127.0.0.1:1"), plan(1, 1).requests)


def test_no_processes_are_none() -> None:
    with pytest.raises(ValueError, match="processes should be 1 or more"):
        run(target("http://127.0.0.1:1"), plan(1, 1).requests, 0)
