"""One clip between two denoising steps."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deployments.contract.job import GenerationJob
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
class PromptEmbeds:
    """The prompt as both streams read it, and which of it counts: (1 or 2, L, C), (1 or 2, L, C), (1 or 2, L).

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
    prompt: PromptEmbeds
    sigmas: Tensor
    """Noise levels, (S+1,) float32 on the CPU, falling to 0."""
    chunks: int
    """Parts in which it will be decoded."""
    i: int = 0
    denoised: Tensor | None = None
    """The picture's tokens without noise, as the last step foresaw them, (1, N, C)."""

    @property
    def steps(self) -> int:
        return len(self.sigmas) - 1

    @property
    def is_denoised(self) -> bool:
        return self.i >= self.steps
