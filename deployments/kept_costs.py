"""What steps cost, from one replica to the next: a new one begins with what others learned on the like of its device.

One object per checkpoint and setup, in `models/costs/`. It is a hint: without it, or with a wrong one, a replica learns
for itself within some hundred steps.
"""

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
EVERY_S: Final = 60.0


class KeptCosts:
    """Every call waits for the object store."""

    def __init__(self, store: ObjectStore, checkpoint: str, setup: Mapping[str, str]) -> None:
        """`setup` is all that a step's time depends on, beside the checkpoint."""
        self._store = store
        named = json.dumps([checkpoint, sorted(setup.items())])
        self._key = f"{FOLDER}/{sha256(named.encode()).hexdigest()[:32]}.json"

    def read(self) -> dict[str, StepCost]:
        """By kinds of steps; nothing where nothing is known, or it can't be had."""
        try:
            return self._found()
        except (BaseError, OSError) as error:
            logger.warning("what steps cost is learned anew: %s", error)
            return {}

    def write(self, costs: Mapping[str, StepCost]) -> None:
        """Beside what is known of other kinds."""
        try:
            known = {kind: asdict(cost) for kind, cost in {**self._found(), **costs}.items()}
            self._store.put_blocking(self._key, json.dumps(known).encode(), "application/json")
        except (BaseError, OSError) as error:
            logger.warning("what steps cost is not kept: %s", error)

    def _found(self) -> dict[str, StepCost]:
        """Nothing where there is nothing, or what makes no sense. Raises BaseError and OSError out of reach."""
        try:
            found = json.loads(self._store.get_blocking(self._key))
            return {kind: _cost(parts) for kind, parts in found.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            logger.warning("what is kept of steps' cost makes no sense: %s", error)
            return {}


class CostKeeper:
    """Keeps what an engine learns, beside its work."""

    def __init__(
        self,
        kept: KeptCosts,
        learned: Callable[[], Mapping[str, StepCost]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept = kept
        self._learned = learned
        self._clock = clock
        self._kept_at = clock()
        self._writing: Thread | None = None

    def keep(self) -> Thread | None:
        """Writes what was learned if the last time was a while ago, in a thread of its own, which is returned."""
        busy = self._writing is not None and self._writing.is_alive()
        if busy or self._clock() - self._kept_at < EVERY_S or not (costs := self._learned()):
            return None
        self._kept_at = self._clock()
        self._writing = Thread(target=self._kept.write, args=(costs,), name="costs", daemon=True)
        self._writing.start()
        return self._writing


def _cost(parts: Mapping[str, float]) -> StepCost:
    """Raises ValueError and TypeError for what is none."""
    cost = StepCost(**{name: float(part) for name, part in parts.items()})
    numbers = cost.fixed, cost.per_token, cost.per_square
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or not any(numbers):
        raise ValueError(f"no cost of steps: {dict(parts)}")
    return cost
