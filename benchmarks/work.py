"""Whether two sides of a comparison did the same: what each says of itself, and the pictures they made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

_ALIKE = 2.0
"""Mean difference of two pictures of one seed, in levels of 255, up to which they are the same picture. One rendered
at another size and enlarged, in another precision or in fewer steps is further off."""


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


def unlike(ours: Sequence[Path], theirs: Sequence[Path]) -> list[str]:
    """What differs between pictures of the same requests, in the same order; empty if they are the same."""
    if len(ours) != len(theirs):
        return [f"{len(ours)} and {len(theirs)} pictures"]
    found = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        a, b = _pixels(one), _pixels(other)
        if a.shape != b.shape:
            found.append(f"picture {number}: {a.shape[1]} x {a.shape[0]} and {b.shape[1]} x {b.shape[0]} pixels")
        elif (off := float(np.abs(a - b).mean())) > _ALIKE:
            found.append(f"picture {number}: {off:.1f} levels of 255 apart")
    return found


def _pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"), float)
