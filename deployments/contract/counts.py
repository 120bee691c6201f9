"""What replicas count of their work, by name. Each only grows, so that those of a lane add up."""

from __future__ import annotations

from typing import Final

STEPS: Final = "steps"
"""Forwards of any number of pictures."""
MEMBERS: Final = "members"
"""Pictures in them, all together."""
BUSY_S: Final = "busy_s"
"""Seconds in which there was a job."""

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
