"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers.request import Shape


@dataclass(frozen=True, slots=True)
class Plan:
    """Counts are per side and round."""

    rounds: int
    one_shape: Shape
    shapes: tuple[Shape, ...]
    solos: int
    """Pictures of each shape that are drawn alone."""
    pictures: int
    """Of each saturated run."""
    clients: int
    """At a time, in a saturated run: two full batches, so that whoever batches has the next one waiting."""
    loads: tuple[float, ...]
    """Arrivals per second, as shares of what the loop draws of the mixed shapes."""
    load_s: float
    """How long requests arrive, at each load."""
    within: float
    """Pictures count as good that come within so many times what the loop takes for the shape alone."""
    requests: int
    """Submissions, and as many polls, whose cost is measured together."""
    handoffs: int
    pause_s: float
    """Before each hand-off."""
    kill_load: float
    kill_s: float
    """How long requests arrive; the kill comes in the middle."""
    limit_s: float
    """A request that has no picture after so many seconds has none."""
    threads: int
    """Of the peers and the loop: all cores, which serves them best. The service has what its profile gives it."""
    max_batch: int
    """Pictures of one forward at most, for whoever batches: as `configs/local.yaml` has it."""


_SHAPES = tuple((side, side, steps) for steps in (4, 8) for side in (64, 128, 256))

FULL = Plan(
    rounds=5,
    one_shape=(128, 128, 8),
    shapes=_SHAPES,
    solos=5,
    pictures=80,
    clients=8,
    loads=(0.5, 0.8, 1.0, 1.3),
    load_s=10.0,
    within=5.0,
    requests=200,
    handoffs=40,
    pause_s=0.05,
    kill_load=0.8,
    kill_s=10.0,
    limit_s=60.0,
    threads=2,
    max_batch=4,
)
SMOKE = Plan(
    rounds=1,
    one_shape=(64, 64, 4),
    shapes=((64, 64, 4), (64, 96, 4)),
    solos=2,
    pictures=4,
    clients=2,
    loads=(0.8,),
    load_s=3.0,
    within=5.0,
    requests=4,
    handoffs=2,
    pause_s=0.01,
    kill_load=0.5,
    kill_s=2.0,
    limit_s=60.0,
    threads=1,
    max_batch=4,
)
