"""Hypothesis state machines over a real Redis server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine

from serve_app.storage import connection

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""All phases but shrinking, which takes many times as long as the search."""

HEALTH_CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class RedisMachine(RuleBasedStateMachine):
    """A state machine with its own key prefix and event loop."""

    def __init__(self, redis_url: str, **options: Any) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.redis = connection.connect(redis_url, **options)
        self.prefix = f"machine-{uuid.uuid4().hex}:"

    def do(self, step: Awaitable[Any]) -> Any:
        async def wrapper() -> Any:
            return await step

        return self.loop.run_until_complete(wrapper())

    def teardown(self) -> None:
        self.do(self.redis.aclose())
        self.loop.close()


def run_machine(machine: type[RuleBasedStateMachine], *, examples: int, steps: int, **options: Any) -> None:
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=steps, suppress_health_check=HEALTH_CHECKS, **options
    )
    case("runTest").runTest()
