"""Reads everything from the task store, in one go for each scrape.

However many tasks there were: what is read are counters, and the first entries of indexes. It grows with the number of
lanes, of routes, and of organizations alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from redis.asyncio import Redis

from serve_app.accounts.credits import Credits
from serve_app.figures import declared
from serve_app.figures.lanes import tell_of_model, tell_of_queue
from serve_app.figures.money import tell_of_money
from serve_app.figures.scrape import Scrape
from serve_app.figures.tallies import tell_of_tallies
from serve_app.figures.webhooks import tell_of_webhooks
from serve_app.tasks.store import TaskStore
from serve_app.webhooks.outbox import Outbox

logger = logging.getLogger(__name__)

_ASKED_S: Final = 2.0
"""How long Serve may take to tell of replicas."""


class FiguresReader:
    def __init__(
        self,
        redis: Redis,
        tasks: TaskStore,
        lanes: Sequence[str],
        *,
        projects: int,
        replicas: Callable[[], Awaitable[Mapping[str, Mapping[str, int]]]],
    ) -> None:
        """`redis` must decode responses. Of projects the `projects` with most are told of. `replicas` tells how many
        each deployment has by their state, and nothing where that is not known.
        """
        self._redis = redis
        self._tasks = tasks
        self._lanes = tuple(lanes)
        self._projects = projects
        self._replicas = replicas
        self._credits = Credits(redis, tasks.prefix)
        self._outbox = Outbox(redis, tasks.prefix)

    async def read(self) -> Scrape:
        """Raises RedisError."""
        scrape, tasks = Scrape(), self._tasks
        for lane in self._lanes:
            await tell_of_queue(tasks, lane, scrape)
            await tell_of_model(tasks, lane, scrape)
        await tell_of_money(self._credits, tasks, self._projects, scrape)
        await tell_of_tallies(self._redis, tasks.prefix, scrape)
        await tell_of_webhooks(self._outbox, scrape)
        scrape.add(declared.SWEEPER_LAG, await tasks.sweep_lag())
        used, most = await tasks.memory()
        scrape.add(declared.STORE_MEMORY, used)
        scrape.add(declared.STORE_LIMIT, most)
        await self._tell_of_replicas(scrape)
        return scrape

    async def _tell_of_replicas(self, scrape: Scrape) -> None:
        try:
            async with asyncio.timeout(_ASKED_S):
                found = await self._replicas()
        except Exception as problem:
            # Whatever it is that keeps Serve from telling: all else is still told.
            logger.warning("Serve does not tell of its replicas: %s", type(problem).__name__)
            return
        for deployment, states in sorted(found.items()):
            for state, count in sorted(states.items()):
                scrape.add(declared.REPLICAS, count, deployment=deployment, state=state)
