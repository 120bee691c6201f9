"""Where and how a checkpoint's networks run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from deployments.contract.model import ENHANCE_NOISE, Caches, Enlarge, TrueGuidance, VideoGuidance
from deployments.families.prompts import SharedEncoder


class PromptReader(Protocol):
    def __call__(self, prompt: str, pictures: int, *, placed: bool, tuned: bool) -> str:
        """What the checkpoint gets of a prompt beside so many pictures. `placed`: a mask or the like says where things
        are. `tuned`: an adapter may have learnt other words."""
        ...


@dataclass(frozen=True, slots=True)
class Placement:
    """Pictures are rendered with a shorter side of `render_side` pixels, whatever size was asked for, and scaled to it
    (None: at full size); `enlarge` says how.
    """

    device: torch.device
    dtype: torch.dtype
    local_only: bool = True
    """Whether all components must lie in the checkpoint's folder already."""
    render_side: int | None = None
    enlarge: Enlarge = "smooth"
    channels_last: bool = False
    """Of pictures: whether the autoencoder's channels lie together in memory: faster, and rounded differently."""
    tile_above: int | None = None
    """Of pictures: the side in pixels above which the autoencoder takes one in tiles of that size."""
    true_guidance: TrueGuidance | None = None
    """Of pictures."""
    redux: Path | None = None
    """Of Flux1: where the components lie that read image prompts; None: in the checkpoint's folder `redux`, if any."""
    distilled: bool = False
    """Of clips: whether the checkpoint was distilled to a few noise levels, which it then gets."""
    enhance_noise: float = ENHANCE_NOISE
    """Over a draft that is enhanced, 0 to 1."""
    video_guidance: VideoGuidance | None = None
    """Of clips; None: plain CFG."""
    keyframe_crf: int | None = None
    """Of H.264, which a clip's keyframes are compressed by first. 0: not at all; None: as its model learned from."""
    read_prompt: PromptReader | None = None
    """How prompts are put before the checkpoint; None: as they are."""
    caches: Caches = field(default_factory=Caches)
    shared_encoder: SharedEncoder | None = None
    """Of pictures: what reads prompts in place of the checkpoint's text encoders, which then are not loaded."""
