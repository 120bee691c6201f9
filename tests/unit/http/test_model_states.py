from __future__ import annotations

import pytest
from redis.asyncio import Redis

from serve_app.api.services import ModelState, ModelStates
from serve_app.config.models import AutoscalingSettings, ModelSettings
from serve_app.config.settings import Settings
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
async def test_a_lanes_state_follows_from_its_replicas(
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


async def test_of_several_lanes_the_worst_counts(store: TaskStore, settings: Settings) -> None:
    async def told() -> dict[str, dict[str, int]]:
        return {SLEEPS: {"RUNNING": 1}, STAYS: {"STOPPING": 1}}

    states = ModelStates(store, settings, [SLEEPS, STAYS], told)
    assert (await states.of([STAYS])).state == "no replica"
    assert (await states.of([SLEEPS, STAYS])).state == "no replica"
    assert (await states.of([SLEEPS])).state == "ready"


async def test_lanes_of_which_nothing_was_made_have_no_wait(redis: Redis, store: TaskStore, settings: Settings) -> None:
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
