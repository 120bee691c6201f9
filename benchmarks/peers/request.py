"""What all sides are asked for, and what the processes of peers are told by their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Self, TypeAlias

Shape: TypeAlias = tuple[int, int, int]
"""Width and height in pixels, denoising steps. What has the same shape can share a batch."""
PID: Final = "x-pid"
"""The header that tells which process drew an image."""
_PREFIX: Final = "PEER_"


@dataclass(frozen=True, slots=True)
class Request:
    """One image. Sides are multiples of 16 pixels, so that nobody has to cut or to enlarge anything."""

    width: int
    height: int
    steps: int
    seed: int
    prompt: str = "a small red star on a dark blue background"
    """In the very words of the bundled checkpoint: the service leaves such a prompt as it is."""

    @property
    def shape(self) -> Shape:
        return self.width, self.height, self.steps


def in_turns(shapes: Sequence[Shape], n: int, seed: int) -> list[Request]:
    """`n` requests that go round the shapes, with seeds from `seed` on: the same for the same arguments."""
    return [Request(*shapes[place % len(shapes)], seed=seed + place) for place in range(n)]


@dataclass(frozen=True, slots=True)
class PeerSettings:
    checkpoint: str
    threads: str
    """Of torch, in the process that holds the model."""
    max_batch: str
    """Images of one forward at most, where a peer batches."""
    folder: str
    port: str
    redis_url: str = ""

    def as_environment(self) -> dict[str, str]:
        return {f"{_PREFIX}{each.name.upper()}": getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Raises KeyError, naming the variable that is missing."""
        return cls(*(environment[f"{_PREFIX}{each.name.upper()}"] for each in fields(cls)))
