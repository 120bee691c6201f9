"""Short runs of what `make chaos` and `make chaos-cluster` do at length; and what they stand on does as it should."""

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

from chaos.faults import DEPLOYED, FAULTS
from chaos.load import TaskRecord, canaries, offers
from chaos.object_server import serving
from chaos.run import Plan, order, run
from chaos.verdict import books_balance, ended_wrongly
from deployments.contract.objects import ObjectStore

ALONE = tuple(FAULTS["one machine"])
KILLS = (*(name for name in ALONE if name.startswith("kill ")), "redeploy, scaled up")
OTHERS = ("freeze a dispatcher", "freeze a model replica", "fill the Redis server", "break a model's device")
NODE_FAULTS = ("kill a worker node", "drain a worker node", "kill the head node", DEPLOYED)


@pytest.mark.whole_service
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(7, 25, 100, KILLS), id="kills"),
        pytest.param(Plan(7, 25, 100, OTHERS), id="others", marks=pytest.mark.slow),
        pytest.param(Plan(7, 30, 60, NODE_FAULTS, on="nodes"), id="nodes", marks=pytest.mark.slow),
    ],
)
def test_promises_are_kept_under_faults(tmp_path: Path, repository: Path, plan: Plan) -> None:
    outcome = run(plan, tmp_path, repository, print)
    assert [finding for finding in outcome.findings if not finding.passed] == []
    assert len(outcome.journal.accepted) >= plan.tasks
    assert [fault for fault, recovered in outcome.journal.faults if recovered is None] == []
    assert {fault for fault, _ in outcome.journal.faults} == set(plan.faults)
    assert outcome.journal.backlog > 0


def test_a_run_follows_from_its_seed() -> None:
    assert offers(1, 200, 60.0) == offers(1, 200, 60.0) != offers(2, 200, 60.0)
    assert list(islice(canaries(1), 20)) == list(islice(canaries(1), 20))
    names = list(islice(order(1, ALONE), 2 * len(ALONE)))
    assert names == list(islice(order(1, ALONE[::-1]), 2 * len(ALONE)))
    assert {name for name, _ in names[: len(ALONE)]} == set(ALONE), "one happened again before all had"


def entries(*kinds: str) -> list[dict[str, str]]:
    """Of the ledger, for a task of ten credits."""
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
def test_what_is_booked_wrongly_is_found(kinds: tuple[str, ...], cost: str, passed: bool) -> None:
    ledger = entries(*kinds)
    credits = {"held": "0", "spent": cost, "balance": ledger[-1]["balance"], "granted": str(1000)}
    assert books_balance(credits, {"t": {"status": "Ready", "cost": cost}}, ledger).passed is passed


def test_only_what_its_client_cancelled_may_fail() -> None:
    cancelled = {"status": "Error", "details": '{"error":"Cancelled by the client"}'}
    assert not ended_wrongly({"status": "Ready"}, TaskRecord("t"))
    assert not ended_wrongly(cancelled, TaskRecord("t", cancelled=True))
    assert ended_wrongly(cancelled, TaskRecord("t"))
    assert ended_wrongly({"status": "Error", "details": "no luck"}, TaskRecord("t", cancelled=True))


async def test_the_object_server_is_one_to_the_service(tmp_path: Path) -> None:
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


def test_a_process_tells_the_time_that_it_is_told_to(tmp_path: Path) -> None:
    wrong_clock = Path(__file__).with_name("wrong_clock")
    environment = os.environ | {"PYTHONPATH": str(wrong_clock), "CHAOS_CLOCKS": str(tmp_path)}
    before = time.time()
    result = subprocess.run([sys.executable, "-c", ASK, "-300"], env=environment, capture_output=True, check=True)
    assert before <= float(result.stdout) + 300 <= time.time()
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == ["", ".heard"]
