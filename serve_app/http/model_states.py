"""Of every lane, whether a replica is there for a task submitted now, and how long that would wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from serve_app.config.settings import Settings
from serve_app.http.shared_answer import SharedAnswer
from serve_app.tasks.lane_load import load_of
from serve_app.tasks.store import TaskStore

logger = logging.getLogger(__name__)

State: TypeAlias = Literal["ready", "starting", "scaled to zero", "no replica"]

_ORDER: Final[tuple[State, ...]] = ("ready", "starting", "scaled to zero", "no replica")
"""The further on, the longer it takes until something is made."""

_FRESH_S: Final = 1.0
_LIMIT_S: Final = 2.0
_RUNNING: Final = "RUNNING"
_COMING: Final = ("STARTING", "UPDATING", "RECOVERING")


@dataclass(frozen=True, slots=True)
class ModelState:
    """`state` is None where nobody knows about replicas, `predicted_wait_s` where no task was ever done."""

    state: State | None
    predicted_wait_s: float | None


class ModelStates:
    """A look a second at most, however many ask."""

    def __init__(self, tasks: TaskStore, settings: Settings, lanes: Iterable[str], replicas: AskReplicas) -> None:
        self._tasks = tasks
        self._settings = settings
        self._lanes = tuple(lanes)
        self._replicas = replicas
        self._states = SharedAnswer(self._look, _FRESH_S)

    async def of(self, lanes: Iterable[str]) -> ModelState:
        """Of what is made by any of these lanes: the worst."""
        known = await self._states.get()
        found = [known[lane] for lane in lanes]
        states: list[State] = [one.state for one in found if one.state is not None]
        waits = [one.predicted_wait_s for one in found if one.predicted_wait_s is not None]
        worst: State | None = max(states, key=_ORDER.index, default=None)
        return ModelState(worst, max(waits, default=None))

    async def _look(self) -> Mapping[str, ModelState]:
        replicas = await self._known_replicas()
        loads = await asyncio.gather(*(load_of(self._tasks, lane) for lane in self._lanes))
        return {
            lane: ModelState(self._state(lane, replicas.get(lane)), load.wait_s)
            for lane, load in zip(self._lanes, loads, strict=True)
        }

    async def _known_replicas(self) -> Replicas:
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await self._replicas()
        except Exception as problem:
            # Whoever counts them may be away, while tasks are taken and made.
            logger.warning("it is not known what replicas there are: %s", type(problem).__name__)
            return {}

    def _state(self, lane: str, replicas: Mapping[str, int] | None) -> State | None:
        if replicas is None:
            return None
        if replicas.get(_RUNNING):
            return "ready"
        if any(replicas.get(state) for state in _COMING):
            return "starting"
        return "no replica" if self._settings.model(lane).autoscaling.min_replicas else "scaled to zero"


Replicas: TypeAlias = Mapping[str, dict[str, int]]
"""Of each deployment, how many there are by their state."""
AskReplicas: TypeAlias = Callable[[], Awaitable[Replicas]]


async def unknown_replicas() -> Replicas:
    return {}
