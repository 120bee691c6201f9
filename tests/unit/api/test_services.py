from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from starlette.testclient import TestClient
from support.virtual_backend import VirtualClock

from serve_app.api.metrics import RequestFigures
from serve_app.api.services import ModelState, ModelStates, SharedAnswer, Watchers
from serve_app.config.models import AutoscalingSettings, ModelSettings
from serve_app.config.settings import Settings
from serve_app.storage.tally import Tallied, Tally
from serve_app.tasks.store import TaskStore

SLEEPS, STAYS = "sleeps", "stays"


@pytest.fixture
def settings() -> Settings:
    return Settings(
        models={
            SLEEPS: ModelSettings(autoscaling=AutoscalingSettings(min_replicas=0, max_replicas=2)),
            STAYS: ModelSettings(autoscaling=AutoscalingSettings(min_replicas=1, max_replicas=2)),
        }
    )


@pytest.mark.parametrize(
    ("replicas", "state"),
    [
        ({SLEEPS: {"RUNNING": 1, "STARTING": 2}}, "ready"),
        ({SLEEPS: {"RUNNING": 0, "STARTING": 2}}, "starting"),
        ({SLEEPS: {"RECOVERING": 1}}, "starting"),
        ({SLEEPS: {"STOPPING": 1}}, "scaled to zero"),
        ({SLEEPS: {}}, "scaled to zero"),
        ({}, None),
    ],
)
async def test_a_queues_state_follows_from_its_replicas(
    store: TaskStore, settings: Settings, replicas: dict[str, dict[str, int]], state: str | None
) -> None:
    async def told() -> dict[str, dict[str, int]]:
        return replicas

    states = ModelStates(store, settings, [SLEEPS, STAYS], told)
    assert await states.of([SLEEPS]) == ModelState(state, None)  # type: ignore[arg-type]


async def test_where_nobody_tells_of_replicas_models_are_listed_all_the_same(
    store: TaskStore, settings: Settings
) -> None:
    async def away() -> dict[str, dict[str, int]]:
        raise ConnectionError

    assert await ModelStates(store, settings, [STAYS], away).of([STAYS]) == ModelState(None, None)


async def test_of_several_queues_the_worst_counts(store: TaskStore, settings: Settings) -> None:
    async def told() -> dict[str, dict[str, int]]:
        return {SLEEPS: {"RUNNING": 1}, STAYS: {"STOPPING": 1}}

    states = ModelStates(store, settings, [SLEEPS, STAYS], told)
    assert (await states.of([STAYS])).state == "no replica"
    assert (await states.of([SLEEPS, STAYS])).state == "no replica"
    assert (await states.of([SLEEPS])).state == "ready"


async def test_queues_of_which_nothing_was_made_have_no_wait(
    redis: Redis, store: TaskStore, settings: Settings
) -> None:
    async def told() -> dict[str, dict[str, int]]:
        return {}

    bounds = {"work:1000": 2, "work:sum": 3000}
    await redis.hset(f"{store.prefix}timings:{SLEEPS}", mapping=bounds)  # type: ignore[misc]
    await redis.zadd(f"{store.prefix}queued:{SLEEPS}", {"a": 1, "b": 2, "c": 3, "d": 4})
    await redis.zadd(f"{store.prefix}leased:{SLEEPS}", {"e": 1, "f": 2})
    states = ModelStates(store, settings, [SLEEPS, STAYS], told)
    assert await states.of([SLEEPS]) == ModelState(None, 3.0)
    assert await states.of([STAYS]) == ModelState(None, None)
    assert await states.of([STAYS, SLEEPS]) == ModelState(None, 3.0)


class Asked:
    def __init__(self) -> None:
        self.times = 0
        self.clock = VirtualClock()
        self.breaks = False
        self.shared = SharedAnswer(self.ask, 1.0, self.clock)

    async def ask(self) -> int:
        self.times += 1
        await asyncio.sleep(0)
        if self.breaks:
            raise ConnectionError
        return self.times


async def test_all_who_come_together_share_one_answer() -> None:
    asked = Asked()
    assert await asyncio.gather(*(asked.shared.get() for _ in range(5))) == [1] * 5


async def test_an_answer_is_good_for_a_moment() -> None:
    asked = Asked()
    seen = []
    for _ in range(4):
        seen.append(await asked.shared.get())
        asked.clock.now += 0.5
    assert seen == [1, 1, 2, 2]


async def test_an_error_is_kept_for_nobody() -> None:
    asked = Asked()
    asked.breaks = True
    with pytest.raises(ConnectionError):
        await asked.shared.get()
    asked.breaks = False
    assert await asked.shared.get() == 2


async def test_whoever_gives_up_takes_the_answer_from_nobody() -> None:
    asked = Asked()
    first, second = (asyncio.create_task(asked.shared.get()) for _ in range(2))
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


def test_all_together_have_half_of_the_places() -> None:
    watchers = Watchers(100)
    with ExitStack() as stack:
        assert sum(follow(watchers, stack, f"{number}", 10) for number in range(10)) == 50
        with watchers.one_more("late") as room:
            assert not room
    with watchers.one_more("late") as room:
        assert room


class Kept(Tally):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, float]] = []

    def observe(self, what: Tallied, name: str, seconds: float) -> None:
        assert what is Tallied.REQUESTS
        self.seen.append((name, seconds))


@pytest.fixture
def tally() -> Kept:
    return Kept()


@pytest.fixture
def client(tally: Kept) -> TestClient:
    app, clock = FastAPI(), VirtualClock()

    @app.get("/things/{thing}")
    async def thing(thing: str) -> str:
        clock.now += 0.25
        if thing == "bad":
            raise RuntimeError
        return thing

    app.add_middleware(RequestFigures, routes=app, tally=tally, clock=clock)
    return TestClient(app, raise_server_exceptions=False)


def test_paths_are_told_as_their_routes_name_them(client: TestClient, tally: Kept) -> None:
    for path in ("/things/1", "/things/2", "/elsewhere/3"):
        client.get(path)
    client.request("BREW", "/things/4")
    assert tally.seen == [
        ("GET 2xx /things/{thing}", 0.25),
        ("GET 2xx /things/{thing}", 0.25),
        ("GET 4xx unmatched", 0.0),
        ("other 4xx /things/{thing}", 0.0),
    ]


def test_what_breaks_is_an_error_of_the_services_own(client: TestClient, tally: Kept) -> None:
    assert client.get("/things/bad").status_code == 500
    assert tally.seen == [("GET 5xx /things/{thing}", 0.25)]
