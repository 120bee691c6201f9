from __future__ import annotations

from typing import NoReturn

import pytest
from support.virtual_backend import VirtualClock

from deployments.contract.objects import ObjectStore
from deployments.engine.cost_model import StepCost
from deployments.replica import COSTS_EVERY_S, FOLDER, CostKeeper, KeptCosts

COST = StepCost(fixed=0.002, per_token=1e-5, per_square=0.0)
SETUP = {"device": "a GPU", "dtype": "bfloat16"}


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("memory:///")


async def test_the_next_replica_of_the_like_begins_with_what_was_learned(store: ObjectStore) -> None:
    KeptCosts(store, "a/model", SETUP).write({"None": COST})
    KeptCosts(store, "a/model", SETUP).write({"other": COST.times(2)})
    assert KeptCosts(store, "a/model", dict(reversed(SETUP.items()))).read() == {"None": COST, "other": COST.times(2)}
    assert KeptCosts(store, "another/model", SETUP).read() == {}
    assert KeptCosts(store, "a/model", {**SETUP, "dtype": "float32"}).read() == {}


@pytest.mark.parametrize(
    "kept",
    [
        b"no json",
        b'{"None": 3}',
        b'{"None": {"fixed": -1, "per_token": 1, "per_square": 1}}',
        b'{"None": {"fixed": NaN, "per_token": 1, "per_square": 1}}',
        b'{"None": {"fixed": 0, "per_token": 0, "per_square": 0}}',
        b'{"None": {"fixed": 1, "per_token": 1, "per_square": 1, "more": 1}}',
    ],
)
async def test_what_makes_no_sense_is_learned_anew(store: ObjectStore, kept: bytes) -> None:
    costs = KeptCosts(store, "a/model", SETUP)
    costs.write({"None": COST})
    [key] = await store.keys(FOLDER)
    store.put_blocking(key, kept, "application/json")
    assert costs.read() == {}
    costs.write({"None": COST})
    assert costs.read() == {"None": COST}


def test_a_store_out_of_reach_keeps_nobody_from_serving(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> NoReturn:
        raise OSError("no route to host")

    for call in ("get_blocking", "put_blocking"):
        monkeypatch.setattr(ObjectStore, call, unreachable)
    costs = KeptCosts(store, "a/model", SETUP)
    assert costs.read() == {}
    costs.write({"None": COST})


def test_what_an_engine_learns_is_kept_once_a_minute(store: ObjectStore) -> None:
    clock, learned = VirtualClock(), dict[str, StepCost]()
    kept = KeptCosts(store, "a/model", SETUP)
    keeper = CostKeeper(kept, lambda: learned, clock)
    clock.now += COSTS_EVERY_S
    assert keeper.keep() is None, "nothing was learned"
    learned["None"] = COST
    writing = keeper.keep()
    assert writing is not None
    writing.join(10)
    assert kept.read() == learned
    assert keeper.keep() is None
    clock.now += COSTS_EVERY_S
    assert keeper.keep() is not None
