"""The `Family` protocol of image models.

A family wraps the components of one diffusers pipeline and replaces its loop: it turns jobs into states, says how fast
the latents of a batch move, and turns a finished state into an image. It keeps nothing about single jobs.
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
    """The components that read prompts."""

    @property
    def transformer(self) -> Any:
        """The network that every step runs: a diffusers model."""
        ...

    @property
    def caches(self) -> Mapping[str, CacheStats]:
        """What is kept for further jobs, by name."""
        ...

    def forget(self) -> None:
        """Keeps nothing of jobs any more, until the next one."""
        ...

    @classmethod
    def load(cls, folder: Path, load_options: LoadOptions) -> Self:
        """Raises CheckpointError when a component is missing or broken."""
        ...

    @classmethod
    def prompt_encoder(cls, folder: Path, load_options: LoadOptions) -> PromptEncoder[Any]:
        """What reads prompts in the checkpoint in `folder`, with nothing else of it. Raises CheckpointError."""
        ...

    def fetch(self, request: PreparedRequest) -> PreparedRequest:
        """With its prompt as a shared text encoder reads it, where there is one: waits for that, from any thread.
        Raises TextEncoderUnavailable."""
        ...

    def encode(self, requests: Sequence[PreparedRequest]) -> list[State | JobError]:
        """One state per request, in order; one that can't be done gets its JobError and the others go on."""
        ...

    def use_packed_attention(self, attention: Attention) -> None:
        """How `packed` keeps images apart, from now on."""
        ...

    def finish(self, state: State) -> Pixels:
        """The image of a state whose steps are all done, in exactly the job's size. Raises NotFinite."""
        ...

    def preview(self, state: State) -> Pixels | None:
        """A small, cheap image of where the state is heading; None before its first step."""
        ...
