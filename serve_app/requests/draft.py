"""The draft of a video, as far as a request that goes on from it needs it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Draft:
    """What a video that is made of it takes over. `width` and `height` are the draft's own, `key` is its latents'.

    `references`, each with its time, and `start` are the objects that the draft was made of.
    """

    key: str
    prompt: str
    seed: int
    seconds: int
    width: int
    height: int
    sound: bool
    task: str = ""
    """Id of the one that made it."""
    references: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    start: str | None = None
