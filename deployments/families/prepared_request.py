"""A job whose inputs were fetched: what a family encodes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deployments.contract.job import GenerationJob


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A job together with the bytes of its input pictures; the references are in the job's order. `prompt` is what a
    shared text encoder made of the job's, as the family keeps it."""

    job: GenerationJob
    references: tuple[bytes, ...] = ()
    mask: bytes | None = None
    control: bytes | None = None
    image_prompt: bytes | None = None
    prompt: tuple[Tensor, ...] | None = None
