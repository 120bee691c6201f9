"""What a run does and when, as far as it is decided beforehand: a function of the seed alone.

When the next fault comes also depends on how long the service takes to recover from the one before. Which one it is,
and how long the pause before it, doesn't.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final

from chaos.receivers import BEHAVIOURS

SIMULATED: Final = "gen-3-image-klein"
REAL: Final = "gen-2-pro-preview"
_REAL_SHARE: Final = 0.03
_HOOKED, _HANGING_UP, _CANCELLED = 0.5, 0.1, 0.05
_STEPS: Final = (2, 16)
_WAITS_S: Final = (0, 0, 0, 2, 10)
_PAUSE_S: Final = (1.0, 3.0)


class Manner(Enum):
    PATIENT = auto()
    HANGS_UP = auto()
    CANCELS = auto()


@dataclass(frozen=True, slots=True)
class Offer:
    """A task that a client will send, and how it will follow it."""

    at_s: float
    """After the beginning of the load."""
    endpoint: str
    hook: str
    """The receiver's behaviour; empty: no webhook is asked for."""
    manner: Manner
    steps: int
    seed: int
    idempotency_key: str
    wait_s: int
    """How long its polls wait at the service: most clients just look again and again."""


def offers(seed: int, tasks: int, seconds: float) -> list[Offer]:
    """So many, at random moments of so many seconds, in order."""
    random = Random(f"offers {seed}")
    moments = sorted(random.uniform(0, seconds) for _ in range(tasks))
    return [_offer(random, at_s) for at_s in moments]


def canaries(seed: int) -> Iterator[Offer]:
    """Small, simulated, with a webhook to a healthy receiver."""
    random = Random(f"canaries {seed}")
    while True:
        yield Offer(0.0, SIMULATED, "healthy", Manner.PATIENT, _STEPS[0], random.randrange(2**32), _key(random), 0)


def faults(seed: int, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Each with the pause behind it, seconds. All happen once, in a random order, before one happens again."""
    random = Random(f"faults {seed}")
    while True:
        for name in random.sample(sorted(names), len(names)):
            yield name, random.uniform(*_PAUSE_S)


def _offer(random: Random, at_s: float) -> Offer:
    return Offer(
        at_s=at_s,
        endpoint=REAL if random.random() < _REAL_SHARE else SIMULATED,
        hook=random.choice(BEHAVIOURS) if random.random() < _HOOKED else "",
        manner=_manner(random.random()),
        steps=random.randint(*_STEPS),
        seed=random.randrange(2**32),
        idempotency_key=_key(random),
        wait_s=random.choice(_WAITS_S),
    )


def _manner(drawn: float) -> Manner:
    if drawn < _HANGING_UP:
        return Manner.HANGS_UP
    return Manner.CANCELS if drawn < _HANGING_UP + _CANCELLED else Manner.PATIENT


def _key(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))
