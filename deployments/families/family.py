"""The `Family` protocol of image models.

A family wraps the components of one diffusers pipeline and replaces its loop: it turns jobs into states, computes the
velocity of a batch, and turns a finished state into an image. It keeps no state of single jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from deployments.backend import JobError
from deployments.families.conditioning import PreparedRequest, PromptEncoder
from deployments.families.packed.batch import Attention
from deployments.families.pipeline import LoadOptions
from deployments.families.state import State
from deployments.families.step import Velocity
from deployments.images import Pixels
from deployments.lru_cache import CacheStats


class Family(Velocity, Protocol):
    text_parts: ClassVar[Sequence[str]]
    """Components that encode prompts."""

    @property
    def transformer(self) -> Any:
        """The diffusers model that every step runs."""
        ...

    @property
    def caches(self) -> Mapping[str, CacheStats]:
        """Statistics of the caches by name."""
        ...

    def forget(self) -> None: ...

    @classmethod
    def load(cls, folder: Path, load_options: LoadOptions) -> Self:
        """Raises CheckpointError for a missing or broken component."""
        ...

    @classmethod
    def prompt_encoder(cls, folder: Path, load_options: LoadOptions) -> PromptEncoder[Any]:
        """Loads only the prompt encoder of the checkpoint in `folder`. Raises CheckpointError."""
        ...

    def fetch(self, request: PreparedRequest) -> PreparedRequest:
        """Adds the prompt encoded by a shared text encoder, if there is one. Blocks. Thread-safe. Raises
        TextEncoderUnavailable."""
        ...

    def encode(self, requests: Sequence[PreparedRequest]) -> list[State | JobError]:
        """Returns one state per request, in order, or its JobError."""
        ...

    def use_packed_attention(self, attention: Attention) -> None:
        """Sets how `packed` keeps images apart."""
        ...

    def finish(self, state: State) -> Pixels:
        """Returns the image of a state whose steps are done, in exactly the job's size. Raises NotFinite."""
        ...

    def preview(self, state: State) -> Pixels | None:
        """Returns a small estimate of the final image; None before the first step."""
        ...
