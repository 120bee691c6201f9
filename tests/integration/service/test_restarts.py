"""Stopping the whole service, in order or not, loses nothing and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.local_service import LocalService
from work_under_way import assert_each_ready_once, events, submit_all, wait_until_under_way


@pytest.fixture
def own_service(tmp_path: Path, repository: Path) -> Iterator[LocalService]:
    service = LocalService(tmp_path, repository, tasks={"lease_s": 3, "max_active": 200})
    try:
        service.start()
        yield service
    finally:
        service.close()


def wait_until_gone(service: LocalService) -> None:
    give_up = time.monotonic() + 30
    while service.processes():
        assert time.monotonic() < give_up, [process.cmdline() for process in service.processes()]
        time.sleep(0.1)


@pytest.mark.slow
def test_ctrl_c_and_kill_of_the_launcher(own_service: LocalService) -> None:
    service = own_service
    before = events(service)
    with service.client() as client:
        ids = submit_all(client)
        wait_until_under_way(client, ids)
    service.stop()
    assert service.processes() == []

    service.start()
    assert_each_ready_once(service, ids, before)

    before = events(service)
    with service.client() as client:
        ids = submit_all(client)
        wait_until_under_way(client, ids)
    service.kill()
    wait_until_gone(service)

    service.start()
    assert_each_ready_once(service, ids, before)
