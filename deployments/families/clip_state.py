"""One clip between two steps: first it is denoised, then it is filmed, chunk by chunk."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from deployments.contract.job import GenerationJob

if TYPE_CHECKING:
    from deployments.backends.clip_export import Filming
    from deployments.backends.start_clip import StartClip
    from deployments.families.clip_shape import ClipShape


@dataclass(eq=False, slots=True)
class Stream:
    """The latent tokens of the picture or of the sound, (1, N, C) float32.

    `known` is 1 for tokens that are given, 0 for those to be made, (1, N, 1); `given` has the former. Further tokens
    than the clip's own may follow: they only show the model what is to come. `places` are (1, axes, N, 2): where each
    token begins and ends.
    """

    x: Tensor
    known: Tensor
    given: Tensor
    places: Tensor


@dataclass(frozen=True, slots=True)
class Words:
    """What both streams read, and which of it counts: (1 or 2, L, C), (1 or 2, L, C), (1 or 2, L).

    With guidance there are two rows, the first for an empty prompt.
    """

    for_picture: Tensor
    for_sound: Tensor
    mask: Tensor


@dataclass(eq=False, slots=True)
class ClipState:
    """`picture`, `sound` and `i`, the steps done, change together, after a step has fully succeeded."""

    job: GenerationJob
    shape: ClipShape
    picture: Stream
    sound: Stream
    words: Words
    sigmas: Tensor
    """Noise levels, (S+1,) float32 on the CPU, falling to 0."""
    chunks: int
    """Parts in which it will be decoded."""
    start: StartClip | None = field(default=None, repr=False)
    """The clip to go on from, which is copied before the new frames."""
    i: int = 0
    estimate: Tensor | None = None
    """Where the picture's tokens seem to be heading, (1, N, C)."""
    filming: Filming | None = field(default=None, repr=False)

    @property
    def key(self) -> Hashable:
        return self.shape.grid, self.denoised

    @property
    def steps(self) -> int:
        return len(self.sigmas) - 1

    @property
    def denoised(self) -> bool:
        return self.i >= self.steps

    @property
    def done_steps(self) -> int:
        return self.i + (self.filming.done if self.filming is not None else 0)

    @property
    def total_steps(self) -> int:
        return self.steps + self.chunks
