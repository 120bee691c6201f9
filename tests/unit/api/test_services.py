from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from starlette.testclient import TestClient
from support.virtual_backend import VirtualClock

from deployments.contract.counts import ReplicaCounts
from serve_app.api.metrics import RequestMetrics
from serve_app.api.services import ModelState, ModelStates, SingleFlightCache, Watchers
from serve_app.storage.tally import CounterBuffer, CounterName
from serve_app.tasks.store import TaskStore
from serve_app.tasks.windows import WindowReader

FIRST, SECOND = "first", "second"


@pytest.mark.parametrize(
    ("replicas", "state"),
    [
        ({FIRST: ReplicaCounts({"RUNNING": 1, "STARTING": 2}, target=3)}, "ready"),
        ({FIRST: ReplicaCounts({"RUNNING": 0, "STARTING": 2}, target=2)}, "starting"),
        ({FIRST: ReplicaCounts({"RECOVERING": 1}, target=1)}, "starting"),
        ({FIRST: ReplicaCounts({"STOPPING": 1}, target=0)}, "scaled to zero"),
        ({FIRST: ReplicaCounts({}, target=0)}, "scaled to zero"),
        ({FIRST: ReplicaCounts({}, target=1)}, "no replica"),
        ({}, None),
    ],
)
async def test_a_queues_state_follows_from_its_replicas(
    store: TaskStore, replicas: dict[str, ReplicaCounts], state: str | None
) -> None:
    async def report_replicas() -> dict[str, ReplicaCounts]:
        return replicas

    states = ModelStates(store, WindowReader(store), [FIRST, SECOND], report_replicas)
    assert await states.find_worst([FIRST]) == ModelState(state, None)  # type: ignore[arg-type]


async def test_where_nobody_tells_of_replicas_models_are_listed_all_the_same(store: TaskStore) -> None:
    async def away() -> dict[str, ReplicaCounts]:
        raise ConnectionError

    assert await ModelStates(store, WindowReader(store), [SECOND], away).find_worst([SECOND]) == ModelState(None, None)


async def test_of_several_queues_the_worst_counts(store: TaskStore) -> None:
    async def report_replicas() -> dict[str, ReplicaCounts]:
        return {FIRST: ReplicaCounts({"RUNNING": 1}, target=1), SECOND: ReplicaCounts({"STOPPING": 1}, target=1)}

    states = ModelStates(store, WindowReader(store), [FIRST, SECOND], report_replicas)
    assert (await states.find_worst([SECOND])).state == "no replica"
    assert (await states.find_worst([FIRST, SECOND])).state == "no replica"
    assert (await states.find_worst([FIRST])).state == "ready"


async def test_queues_of_which_nothing_was_made_have_no_wait(redis: Redis, store: TaskStore) -> None:
    async def report_replicas() -> dict[str, ReplicaCounts]:
        return {}

    buckets = {"work:1000": 2, "work:sum": 3000}
    await redis.hset(f"{store.prefix}timings:{FIRST}", mapping=buckets)  # type: ignore[misc]
    await redis.zadd(f"{store.prefix}queued:{FIRST}", {"a": 1, "b": 2, "c": 3, "d": 4})
    await redis.zadd(f"{store.prefix}leased:{FIRST}", {"e": 1, "f": 2})
    states = ModelStates(store, WindowReader(store), [FIRST, SECOND], report_replicas)
    assert await states.find_worst([FIRST]) == ModelState(None, 3.0)
    assert await states.find_worst([SECOND]) == ModelState(None, None)
    assert await states.find_worst([SECOND, FIRST]) == ModelState(None, 3.0)


class Source:
    def __init__(self) -> None:
        self.times = 0
        self.clock = VirtualClock()
        self.breaks = False
        self.shared = SingleFlightCache(self.ask, 1.0, self.clock)

    async def ask(self) -> int:
        self.times += 1
        await asyncio.sleep(0)
        if self.breaks:
            raise ConnectionError
        return self.times


async def test_all_who_come_together_share_one_answer() -> None:
    source = Source()
    assert await asyncio.gather(*(source.shared.get() for _ in range(5))) == [1] * 5


async def test_an_answer_is_good_for_a_moment() -> None:
    source = Source()
    values = []
    for _ in range(4):
        values.append(await source.shared.get())
        source.clock.now += 0.5
    assert values == [1, 1, 2, 2]


async def test_an_error_is_kept_for_nobody() -> None:
    source = Source()
    source.breaks = True
    with pytest.raises(ConnectionError):
        await source.shared.get()
    source.breaks = False
    assert await source.shared.get() == 2


async def test_whoever_gives_up_takes_the_answer_from_nobody() -> None:
    source = Source()
    first, second = (asyncio.create_task(source.shared.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 2


def follow(watchers: Watchers, stack: ExitStack, task: str, times: int) -> int:
    """How many of them have room to wait."""
    return sum(stack.enter_context(watchers.one_more(task)) for _ in range(times))


def test_one_task_has_some() -> None:
    watchers = Watchers(2000)
    with ExitStack() as stack:
        assert follow(watchers, stack, "one", 100) == 32
        assert follow(watchers, stack, "other", 10) == 10
    with ExitStack() as stack:
        assert follow(watchers, stack, "one", 100) == 32


def test_all_together_have_three_quarters_of_the_places() -> None:
    watchers = Watchers(100)
    with ExitStack() as stack:
        assert sum(follow(watchers, stack, f"{number}", 10) for number in range(10)) == 75
        with watchers.one_more("late") as room:
            assert not room
    with watchers.one_more("late") as room:
        assert room


class RecordingTally(CounterBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.timings: list[tuple[str, float]] = []

    def observe(self, what: CounterName, name: str, seconds: float) -> None:
        assert what is CounterName.REQUESTS
        self.timings.append((name, seconds))


@pytest.fixture
def tally() -> RecordingTally:
    return RecordingTally()


@pytest.fixture
def client(tally: RecordingTally) -> TestClient:
    app, clock = FastAPI(), VirtualClock()

    @app.get("/things/{thing}")
    async def thing(thing: str) -> str:
        clock.now += 0.25
        if thing == "bad":
            raise RuntimeError
        return thing

    app.add_middleware(RequestMetrics, routes=app, tally=tally, clock=clock)
    return TestClient(app, raise_server_exceptions=False)


def test_paths_are_told_as_their_routes_name_them(client: TestClient, tally: RecordingTally) -> None:
    for path in ("/things/1", "/things/2", "/elsewhere/3"):
        client.get(path)
    client.request("BREW", "/things/4")
    assert tally.timings == [
        ("GET 2xx /things/{thing}", 0.25),
        ("GET 2xx /things/{thing}", 0.25),
        ("GET 4xx unmatched", 0.0),
        ("other 4xx /things/{thing}", 0.0),
    ]


def test_what_breaks_is_an_error_of_the_services_own(client: TestClient, tally: RecordingTally) -> None:
    assert client.get("/things/bad").status_code == 500
    assert tally.timings == [("GET 5xx /things/{thing}", 0.25)]
