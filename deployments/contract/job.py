"""What the service asks of a model, and what the model hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Box: TypeAlias = tuple[int, int, int, int]
"""`(top, left, bottom, right)`, integers 0 to 1000, relative to the picture."""

OutputFormat: TypeAlias = Literal["jpeg", "png", "webp"]


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """One row of a prompt's region table.

    `source` names the reference picture an element is taken from (None: newly described); a `target` of None
    removes the element; `source_box` equal to `target` keeps it, a differing one moves or resizes it.
    """

    name: str
    target: Box | None
    description: str
    source: str | None = None
    source_box: Box | None = None


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """One attempt at one picture, fully decided: nothing in it is left to a default.

    Sizes are in pixels. `references` are object-store keys of decoded-and-checked input pictures, in the client's
    order. `output_prefix` is where this attempt may write; it differs between attempts, so an attempt that lost its
    lease can never overwrite a published result. `deadline` is epoch seconds. `isolated` asks the engine to run the
    job with the batch to itself: it is set on a task that already lost several workers.
    """

    id: str
    attempt: int
    prompt: str
    width: int
    height: int
    steps: int
    seed: int
    output_format: OutputFormat
    output_prefix: str
    references: tuple[str, ...] = ()
    layout: tuple[LayoutRow, ...] = ()
    deadline: float | None = None
    isolated: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A finished result: an object in the store, never bytes."""

    key: str
    content_type: str
    width: int
    height: int
    size: int
    """Length in bytes."""
