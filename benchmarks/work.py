"""Whether two sides of a comparison did the same: what each says of itself, and the pictures they made."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from PIL import Image

ROUNDED: Final = 8
"""Levels of 255 that a JPEG may be apart where sums were rounded otherwise, as with another number of threads: three
were measured. Another size, seed or number of steps makes tens along edges."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one side did for a request, by its own account."""

    rendered: tuple[int, int]
    """Width and height in pixels of what went through the model, whatever size the picture was scaled to."""
    steps: int
    dtype: str
    threads: int

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Work:
        width, height = said["rendered"]
        return cls((width, height), said["steps"], said["dtype"], said["threads"])


def differences(name: str, work: Sequence[Work], other_name: str, other: Sequence[Work]) -> list[str]:
    """Of the same requests in the same order, each kind of difference once; empty if there is none."""
    if len(work) != len(other):
        return [f"{name} did {len(work)} pictures, {other_name} {len(other)}"]
    found = {}
    for one, same in zip(work, other, strict=True):
        for field in fields(Work):
            mine, theirs = getattr(one, field.name), getattr(same, field.name)
            if mine != theirs:
                found.setdefault(field.name, f"{field.name}: {name} {mine}, {other_name} {theirs}")
    return list(found.values())


def unlike(ours: Sequence[bytes], theirs: Sequence[bytes], levels: int = 0) -> list[str]:
    """What differs between files of the same requests, in the same order, by more than so many levels of 255; empty if
    they are pixel by pixel the same.

    Drawn one at a time they are, if size, steps, precision and seed were: nothing less proves it. One rendered smaller
    and enlarged differs along edges alone, and by little on average.
    """
    if len(ours) != len(theirs):
        return [f"{len(ours)} and {len(theirs)} pictures"]
    found = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if (off := largest_difference(one, other)) is None:
            found.append(f"picture {number} is missing, or of another size")
        elif off > levels:
            found.append(f"picture {number}: up to {off} levels of 255 apart")
    return found


def largest_difference(one: bytes, other: bytes) -> int | None:
    """Of two files' pixels, of 255. None where they are not comparable: one is missing, or of another size."""
    if not one or not other:
        return None
    pixels, others = (np.asarray(Image.open(io.BytesIO(file)), int) for file in (one, other))
    return int(np.abs(pixels - others).max()) if pixels.shape == others.shape else None
