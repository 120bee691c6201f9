"""The `VideoFamily` protocol, and the state of one video between two steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from torch import Tensor

from deployments.contract.job import GenerationJob
from deployments.families.canvas import Scale, VideoShape
from deployments.families.pipeline import LoadOptions
from deployments.images import Pixels
from deployments.video.writer import Audio


@dataclass(eq=False, slots=True)
class Stream:
    """The latent tokens of the image or of the sound, (1, N, C) float32.

    `known` is 1 for tokens that are given, 0 for those to be made, (1, N, 1); `given` has the former. Further tokens
    than the video's own may follow: they only show the model what is to come. `places` are (1, axes, N, 2): where each
    token begins and ends.
    """

    x: Tensor
    conditioning_mask: Tensor
    clean_latents: Tensor
    places: Tensor


@dataclass(frozen=True, slots=True)
class PromptEmbeds:
    """The prompt as both streams read it, and which of it counts: (1 or 2, L, C), (1 or 2, L, C), (1 or 2, L).

    With guidance there are two rows, the first for an empty prompt.
    """

    for_video: Tensor
    for_audio: Tensor
    mask: Tensor


@dataclass(eq=False, slots=True)
class VideoState:
    """`video`, `audio` and `i`, the steps done, change together, after a step has fully succeeded."""

    job: GenerationJob
    shape: VideoShape
    video: Stream
    audio: Stream
    prompt: PromptEmbeds
    sigmas: Tensor
    """Noise levels, (S+1,) float32 on the CPU, falling to 0."""
    chunks: int
    """Parts in which it will be decoded."""
    i: int = 0
    denoised: Tensor | None = None
    """The image's tokens without noise, as the last step foresaw them, (1, N, C)."""

    @property
    def steps(self) -> int:
        return len(self.sigmas) - 1

    @property
    def is_denoised(self) -> bool:
        return self.i >= self.steps


@dataclass(frozen=True, slots=True)
class DraftLatents:
    """The latents of a video, (1, C, F, h, w) of the image and (1, C, L, bands) of the sound, float32."""

    video: Tensor
    audio: Tensor


@dataclass(frozen=True, slots=True)
class VideoInputs:
    """What a video is made from, beside words.

    Frames and keyframes have any size. Those of `lead` are the last of the video to go on from, as many as
    `lead_frames` says, and `lead_audio` is what is heard with them.
    """

    keyframes: tuple[Pixels, ...] = ()
    lead: Pixels | None = None
    """(F, H, W, 3)."""
    lead_audio: Audio | None = None
    draft: DraftLatents | None = None


@runtime_checkable
class VideoFamily(Protocol):
    @property
    def transformer(self) -> Any:
        """The network that every step runs: a diffusers model."""
        ...

    @property
    def scale(self) -> Scale: ...

    @classmethod
    def load(cls, folder: Path, load_options: LoadOptions) -> Self:
        """Raises CheckpointError when a component is missing or broken."""
        ...

    def shape(self, job: GenerationJob, lead: int) -> VideoShape:
        """How large the job's video is while it is made, given how many frames lead in."""
        ...

    def encode(self, job: GenerationJob, inputs: VideoInputs) -> VideoState:
        """The video before its first step. Raises JobError."""
        ...

    def step(self, state: VideoState) -> None:
        """One denoising step; all or nothing. Raises NotFinite."""
        ...

    def frames(self, state: VideoState) -> Iterator[Pixels]:
        """The new frames, in `state.chunks` parts, each (F, height, width, 3) of the rendered frame's size.

        Raises NotFinite, part by part.
        """
        ...

    def decode_audio(self, state: VideoState) -> Audio:
        """What is to be heard with the new frames. Raises NotFinite."""
        ...

    def preview_frame(self, state: VideoState) -> Pixels | None:
        """The first new frame, as far as it can be seen by now; None before the first step."""
        ...

    def draft(self, state: VideoState) -> DraftLatents:
        """What another pass can begin from."""
        ...

    def probe(self) -> Tensor:
        """What one step makes of a tiny video. Raises whatever goes wrong."""
        ...
