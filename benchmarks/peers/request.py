"""Requests that all sides get, and the settings of peer processes, passed by environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Self, TypeAlias

Shape: TypeAlias = tuple[int, int, int]
"""Width and height in pixels, and denoising steps. Requests of one shape can share a batch."""
PID: Final = "x-pid"
"""Response header with the id of the process that drew the image."""
_PREFIX: Final = "PEER_"


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """Request for one image. Sides are multiples of 16 pixels, so that no side has to crop or pad."""

    width: int
    height: int
    steps: int
    seed: int
    prompt: str = "a small red star on a dark blue background"
    """Prompt in the vocabulary of the bundled checkpoint, which the service does not rewrite."""

    @property
    def shape(self) -> Shape:
        return self.width, self.height, self.steps


def cycle_shapes(shapes: Sequence[Shape], n: int, seed: int) -> list[PeerRequest]:
    """Returns `n` requests that cycle through the shapes, with seeds from `seed` on."""
    return [PeerRequest(*shapes[index % len(shapes)], seed=seed + index) for index in range(n)]


@dataclass(frozen=True, slots=True)
class PeerSettings:
    checkpoint: str
    threads: str
    """Torch threads of the process that holds the model."""
    max_batch: str
    """Maximum of images in one forward, where a peer batches."""
    folder: str
    port: str
    redis_url: str = ""

    def as_environment(self) -> dict[str, str]:
        return {f"{_PREFIX}{each.name.upper()}": getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Reads the settings. Raises KeyError with the name of a missing variable."""
        return cls(*(environment[f"{_PREFIX}{each.name.upper()}"] for each in fields(cls)))
