"""What the service asks of a video model beside what it asks of any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FPS: Final = 24
"""Frames a second of every video that is made here."""


@dataclass(frozen=True, slots=True)
class Clip:
    """The part of a job that only videos have: `frames` new frames are made, with `sound` or silent.

    `times` says for each of the job's `references` at which second it is to be seen. `start` (an object key, like the
    following) is a video to go on from: its end leads in, and the result is it and the new frames, joined. `draft` asks
    for a quick pass whose latents are kept; `enhance` names such latents, whose composition the result has. Between two
    steps the latents are kept at `checkpoint`, which all attempts share, so that another one can go on from there.
    """

    frames: int
    checkpoint: str
    sound: bool = True
    times: tuple[float, ...] = ()
    start: str | None = None
    draft: bool = False
    enhance: str | None = None
