"""Short chaos runs, and tests of their parts. `make chaos` and `make chaos-cluster` run at length."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from itertools import islice
from pathlib import Path

import httpx2
import pytest
from obstore.exceptions import BaseError

from chaos.faults import DEPLOY, FAULTS
from chaos.load import TaskRecord, canaries, schedule_requests
from chaos.object_server import serving
from chaos.run import ChaosPlan, run, shuffle_faults
from chaos.verdict import check_ledger, failed_without_cancel
from deployments.contract.objects import ObjectStore

ALONE = tuple(FAULTS["one machine"])
CORE_KILLS = ("kill a dispatcher", "kill a model replica", "kill an inference server", "kill the Redis server")
OTHERS = (
    *(name for name in ALONE if name.startswith("kill ") and name not in CORE_KILLS),
    *("freeze a dispatcher", "freeze a model replica", "fill the Redis server", "break a model's device"),
    "redeploy, scaled up",
)
NODE_FAULTS = ("kill a worker node", "drain a worker node", "kill the head node", DEPLOY)


@pytest.mark.whole_service
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(ChaosPlan(7, 10, 60, CORE_KILLS), id="core-kills"),
        pytest.param(ChaosPlan(7, 25, 100, OTHERS), id="others", marks=pytest.mark.slow),
        pytest.param(ChaosPlan(7, 30, 60, NODE_FAULTS, topology="nodes"), id="nodes", marks=pytest.mark.slow),
    ],
)
def test_promises_are_kept_under_faults(tmp_path: Path, repository: Path, plan: ChaosPlan) -> None:
    outcome = run(plan, tmp_path, repository, print)
    assert [result for result in outcome.results if not result.passed] == []
    assert len(outcome.journal.accepted) >= plan.tasks
    assert [fault for fault, recovered in outcome.journal.faults if recovered is None] == []
    assert {fault for fault, _ in outcome.journal.faults} == set(plan.faults)
    assert outcome.journal.backlog > 0


def test_seed_determines_requests_and_faults() -> None:
    assert schedule_requests(1, 200, 60.0) == schedule_requests(1, 200, 60.0) != schedule_requests(2, 200, 60.0)
    assert list(islice(canaries(1), 20)) == list(islice(canaries(1), 20))
    names = list(islice(shuffle_faults(1, ALONE), 2 * len(ALONE)))
    assert names == list(islice(shuffle_faults(1, ALONE[::-1]), 2 * len(ALONE)))
    assert {name for name, _ in names[: len(ALONE)]} == set(ALONE), "a fault happened twice before another"


def make_entries(*kinds: str) -> list[dict[str, str]]:
    """Returns entries of the ledger for a task of ten credits."""
    amounts, balance, ledger = {"hold": -10, "settle": 0, "return": 10}, 1000, list[dict[str, str]]()
    for kind in kinds:
        balance += amounts[kind]
        ledger.append({"task": "t", "kind": kind, "amount": str(amounts[kind]), "balance": str(balance)})
    return ledger


@pytest.mark.parametrize(
    ("kinds", "cost", "passed"),
    [
        (("hold", "settle"), "10", True),
        (("hold", "return"), "0", True),
        (("hold",), "0", False),
        (("hold", "settle", "settle"), "10", False),
        (("hold", "return", "hold", "settle"), "10", False),
        (("hold", "return"), "10", False),
    ],
)
def test_wrong_ledger_entries_are_found(kinds: tuple[str, ...], cost: str, passed: bool) -> None:
    ledger = make_entries(*kinds)
    credits = {"held": "0", "spent": cost, "balance": ledger[-1]["balance"], "granted": str(1000)}
    assert check_ledger(credits, {"t": {"status": "Ready", "cost": cost}}, ledger).passed is passed


def test_only_cancelled_tasks_may_fail() -> None:
    cancelled = {"status": "Error", "details": '{"error":"Cancelled by the client"}'}
    assert not failed_without_cancel({"status": "Ready"}, TaskRecord("t"))
    assert not failed_without_cancel(cancelled, TaskRecord("t", cancelled=True))
    assert failed_without_cancel(cancelled, TaskRecord("t"))
    assert failed_without_cancel({"status": "Error", "details": "no luck"}, TaskRecord("t", cancelled=True))


async def test_object_server_serves_the_object_store(tmp_path: Path) -> None:
    key, image = "results/a/1/image.jpeg", bytes(6 * 2**20)
    with serving(tmp_path / "bucket") as server:
        store = ObjectStore(**server.settings)
        await store.put(key, image, "image/jpeg")  # in one request
        assert (server.folder / key).read_bytes() == await store.get(key) == image
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            assert (await http.get(await store.sign(key, timedelta(minutes=1)))).content == image
        assert await store.keys("results/a") == [key]
        server.dead = True
        with pytest.raises(BaseError):
            await store.get(key)
        server.dead = False
        await store.delete([key.replace("1", "2")])
        await store.delete_prefix("results/a")
        with pytest.raises(FileNotFoundError):
            await store.get(key)


ASK = """
import os, pathlib, sys, time
pathlib.Path(os.environ["CHAOS_CLOCKS"], str(os.getpid())).write_text(sys.argv[1])
print(time.time())
"""


def test_process_clock_has_the_written_offset(tmp_path: Path) -> None:
    wrong_clock = Path(__file__).with_name("wrong_clock")
    environment = os.environ | {"PYTHONPATH": str(wrong_clock), "CHAOS_CLOCKS": str(tmp_path)}
    before = time.time()
    result = subprocess.run([sys.executable, "-c", ASK, "-300"], env=environment, capture_output=True, check=True)
    assert before <= float(result.stdout) + 300 <= time.time()
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == ["", ".read"]
