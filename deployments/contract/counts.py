"""What replicas count of their work, by name. Each only grows, so that those of a lane add up."""

from __future__ import annotations

from typing import Final

from deployments.contract.histogram import Buckets

STEPS: Final = "steps"
"""Forwards of any number of pictures."""
MEMBERS: Final = "members"
"""Pictures in them, all together."""
BUSY_S: Final = "busy_s"
"""Seconds in which there was a job."""
LOADS: Final = "loads"
"""Replicas that loaded their model and told of a job."""
LOAD_S: Final = "load_s"
"""Seconds that it took them."""

OUT_OF_MEMORY: Final = "out_of_memory"
"""Calls of the backend that did not fit into memory; each was tried again in a smaller batch or alone."""
NOT_FINITE: Final = "not_finite"
"""Calls of the backend that gave NaN or infinity."""
COMPILE_FALLBACKS: Final = "compile_fallbacks"
"""Replicas that run without compilation because it failed."""
ATTENTION_FALLBACKS: Final = "attention_fallbacks"
"""Configured attention backends that do not work, by replica."""
FAULTS: Final = (OUT_OF_MEMORY, NOT_FINITE, COMPILE_FALLBACKS, ATTENTION_FALLBACKS)

BATCH: Final = "batch"
"""A histogram: how many took a step together. MEMBERS is its sum."""
BATCHES: Final = Buckets((1, 2, 4, 8, 16, 32, 64))
STEP: Final = "step_ms"
"""A histogram: how long a step took."""
STEP_TIMES: Final = Buckets((5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000), per_unit=1000)

CALLS: Final = ("encode", "steps", "finish")
"""What a backend does on its device."""
CACHES: Final = ("prompts", "references", "adapters")
"""What is kept for further jobs."""


def seconds(call: str) -> str:
    """Of a call of a backend."""
    return f"{call}_s"


def hits(cache: str) -> str:
    return f"{cache}_hits"


def misses(cache: str) -> str:
    return f"{cache}_misses"


def evictions(cache: str) -> str:
    return f"{cache}_evictions"
