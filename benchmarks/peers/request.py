"""What all sides are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, TypeAlias

Shape: TypeAlias = tuple[int, int, int]
"""Width and height in pixels, denoising steps. What has the same shape can share a batch."""


@dataclass(frozen=True, slots=True)
class Request:
    """One picture. Sides are multiples of 16 pixels, so that nobody has to cut or to enlarge anything."""

    prompt: str
    width: int
    height: int
    steps: int
    seed: int

    @property
    def shape(self) -> Shape:
        return self.width, self.height, self.steps

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def groups(requests: Iterable[Request]) -> list[list[int]]:
    """The places of the requests that have one shape, shape by shape, in the order of their first ones."""
    numbered = list(enumerate(requests))
    first: dict[Shape, int] = {}
    for place, request in numbered:
        first.setdefault(request.shape, place)
    ordered = sorted(numbered, key=lambda one: first[one[1].shape])
    return [[place for place, _ in group] for _, group in groupby(ordered, key=lambda one: one[1].shape)]


def in_turns(shapes: Sequence[Shape], n: int, seed: int) -> list[Request]:
    """`n` requests that go round the shapes, with seeds from `seed` on: the same for the same arguments."""
    return [Request(PROMPT, *shapes[place % len(shapes)], seed=seed + place) for place in range(n)]


PROMPT = "a small red star on a dark blue background"
"""In the very words of the bundled checkpoint: the service leaves such a prompt as it is."""
