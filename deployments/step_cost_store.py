"""Store of step costs: what a replica measures is the initial estimate of the next one on such a device."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from threading import Thread
from typing import Final

from obstore.exceptions import BaseError

from deployments.contract.objects import ObjectStore
from deployments.engine.cost_model import StepCost

logger = logging.getLogger(__name__)

FOLDER: Final = "models/costs"
WRITE_INTERVAL_S: Final = 60.0


class StepCostStore:
    """Reads and writes the costs of one checkpoint and setup by step key. `read` and `write` block."""

    def __init__(
        self,
        store: ObjectStore,
        checkpoint: str,
        setup: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`setup` names everything besides the checkpoint that the time of a step depends on."""
        self._store = store
        identity = json.dumps([checkpoint, sorted(setup.items())])
        self._key = f"{FOLDER}/{sha256(identity.encode()).hexdigest()[:32]}.json"
        self._clock = clock
        self._last_write_at = clock()
        self._writer: Thread | None = None

    def read(self) -> dict[str, StepCost]:
        """Returns the stored costs; empty if there are none or the store can't be reached."""
        try:
            return self._load()
        except (BaseError, OSError) as error:
            logger.warning("can't read step costs, they are measured again: %s", error)
            return {}

    def write(self, costs: Mapping[str, StepCost]) -> None:
        """Adds `costs` to the stored ones."""
        try:
            entries = {step_key: asdict(cost) for step_key, cost in {**self._load(), **costs}.items()}
            self._store.put_blocking(self._key, json.dumps(entries).encode(), "application/json")
        except (BaseError, OSError) as error:
            logger.warning("can't store step costs: %s", error)

    def write_in_background(self, read_costs: Callable[[], Mapping[str, StepCost]]) -> Thread | None:
        """Writes what `read_costs` returns in a thread, and returns that; None if no write is due."""
        is_writing = self._writer is not None and self._writer.is_alive()
        if is_writing or self._clock() - self._last_write_at < WRITE_INTERVAL_S or not (costs := read_costs()):
            return None
        self._last_write_at = self._clock()
        self._writer = Thread(target=self.write, args=(costs,), name="costs", daemon=True)
        self._writer.start()
        return self._writer

    def _load(self) -> dict[str, StepCost]:
        """Returns the stored costs; empty if there are none or they are invalid. Raises BaseError, OSError."""
        try:
            entries = json.loads(self._store.get_blocking(self._key))
            return {step_key: _step_cost(parts) for step_key, parts in entries.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            logger.warning("the stored step costs are invalid: %s", error)
            return {}


def _step_cost(parts: Mapping[str, float]) -> StepCost:
    """Raises ValueError, TypeError."""
    cost = StepCost(**{name: float(part) for name, part in parts.items()})
    numbers = cost.fixed, cost.per_token, cost.per_square
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or not any(numbers):
        raise ValueError(f"not a step cost: {dict(parts)}")
    return cost
