"""The `VideoFamily` protocol, and the state of one video between two steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from torch import Tensor

from deployments.backend import JobError
from deployments.contract.job import GenerationJob
from deployments.contract.request import VideoParams
from deployments.families.canvas import Scale, VideoShape
from deployments.families.pipeline import LoadOptions
from deployments.images import Pixels
from deployments.video.writer import Audio


@dataclass(eq=False, slots=True)
class Stream:
    """Latent tokens of the image or the sound, (1, N, C) float32.

    `conditioning_mask` is 1 for given tokens and 0 for those to be made, (1, N, 1); `clean_latents` has the given ones.
    Keyframes add tokens after those of the video. `positions` are the start and end of each token, (1, axes, N, 2).
    """

    x: Tensor
    conditioning_mask: Tensor
    clean_latents: Tensor
    positions: Tensor


@dataclass(frozen=True, slots=True)
class PromptEmbeds:
    """The prompt encoded for both streams, and its attention mask: (1 or 2, L, C), (1 or 2, L, C), (1 or 2, L).

    With CFG there are two rows, the first for an empty prompt.
    """

    for_video: Tensor
    for_audio: Tensor
    mask: Tensor


@dataclass(eq=False, slots=True)
class VideoState:
    """A video between two steps. `video`, `audio` and `i`, the steps done, change together, after a step."""

    job: GenerationJob
    shape: VideoShape
    video: Stream
    audio: Stream
    prompt: PromptEmbeds
    sigmas: Tensor
    """Noise levels, (S+1,) float32 on the CPU, falling to 0."""
    chunks: int
    """Number of parts that it is decoded in."""
    i: int = 0
    denoised: Tensor | None = None
    """Tokens of the image without noise, as predicted by the last step, (1, N, C)."""

    @property
    def steps(self) -> int:
        return len(self.sigmas) - 1

    @property
    def is_denoised(self) -> bool:
        return self.i >= self.steps


@dataclass(frozen=True, slots=True)
class DraftLatents:
    """Latents of a video, (1, C, F, h, w) of the image and (1, C, L, bands) of the sound, float32."""

    video: Tensor
    audio: Tensor


@dataclass(frozen=True, slots=True)
class VideoInputs:
    """Inputs of a video beside its prompt.

    Frames and keyframes have any size. `lead` is the end of the video to continue, `lead_frames` long, and `lead_audio`
    its sound.
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
        """The diffusers model that every step runs."""
        ...

    @property
    def scale(self) -> Scale: ...

    @classmethod
    def load(cls, folder: Path, load_options: LoadOptions) -> Self:
        """Raises CheckpointError for a missing or broken component."""
        ...

    def shape(self, job: GenerationJob, lead: int) -> VideoShape:
        """Returns the shape in which the job's video is rendered, after `lead` frames."""
        ...

    def encode(self, job: GenerationJob, inputs: VideoInputs) -> VideoState:
        """Returns the video before its first step. Raises JobError."""
        ...

    def step(self, state: VideoState) -> None:
        """Takes one denoising step, or none if it raises. Raises NotFinite."""
        ...

    def frames(self, state: VideoState) -> Iterator[Pixels]:
        """Yields the new frames in `state.chunks` parts, (F, height, width, 3) each, in the rendered size.

        Raises NotFinite for a part.
        """
        ...

    def decode_audio(self, state: VideoState) -> Audio:
        """Returns the sound of the new frames. Raises NotFinite."""
        ...

    def preview_frame(self, state: VideoState) -> Pixels | None:
        """Returns an estimate of the first new frame; None before the first step."""
        ...

    def draft(self, state: VideoState) -> DraftLatents:
        """Returns the latents from which a draft is enhanced."""
        ...

    def probe(self) -> Tensor:
        """Takes one step of a tiny video and returns its tokens. Raises any error."""
        ...


def video_params(job: GenerationJob) -> VideoParams:
    """Raises JobError for an image."""
    if job.request.video is None:
        raise JobError("this model makes videos, not images")
    return job.request.video
