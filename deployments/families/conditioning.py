"""Conditioning inputs: prompt encoders (own or shared), encoded references and their cache, the prepared request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import safetensors.torch
import torch
from PIL import Image
from torch import Tensor, nn

from deployments.backend import JobError
from deployments.contract.job import GenerationJob
from deployments.contract.model import CacheSizes
from deployments.families.state import T, tensor_bytes
from deployments.images import open_image
from deployments.lru_cache import MB, ByteCache, CacheStats

Embeds = TypeVar("Embeds", bound=tuple[Tensor, ...])
Embeds_co = TypeVar("Embeds_co", bound=tuple[Tensor, ...], covariant=True)


class PromptEncoder(Protocol[Embeds_co]):
    def encode(self, prompts: Sequence[str]) -> Sequence[Embeds_co]:
        """One per prompt, in order, at least one; none of them keeps another one in memory."""
        ...


SharedEncoder: TypeAlias = Callable[[str], bytes]
"""From a prompt to what `as_bytes` made of it elsewhere. Waits; from any thread. Raises TextEncoderUnavailable."""


def as_bytes(tensors: tuple[Tensor, ...]) -> bytes:
    """In the format of safetensors, each tensor by its place."""
    return safetensors.torch.save({str(place): tensor.cpu().contiguous() for place, tensor in enumerate(tensors)})


def from_bytes(data: bytes, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """In their order, on `device`; what is no integer in `dtype`."""
    tensors = safetensors.torch.load(data)
    embeds = [tensors[str(place)] for place in range(len(tensors))]
    return [tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in embeds]


def trim_language_model(model: Any, last_state: int) -> None:
    """Drops from `model` what comes after hidden state `last_state`: later layers and the head, which gives a logit for
    every word of its vocabulary and token of the prompt. The first later layer stays: the last state has a norm of its
    own."""
    decoder = model.get_decoder()
    decoder.layers = decoder.layers[: last_state + 1]
    model.lm_head = nn.Identity()


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A job together with the bytes of its input images; the references are in the job's order. `prompt` is what a
    shared text encoder made of the job's, as the family keeps it."""

    job: GenerationJob
    references: tuple[bytes, ...] = ()
    mask: bytes | None = None
    control: bytes | None = None
    image_prompt: bytes | None = None
    prompt: tuple[Tensor, ...] | None = None


class References(Generic[T]):
    def __init__(self, most: int, caches: CacheSizes, *, alone_differs: bool = False) -> None:
        """A job may have `most`. `alone_differs` where the only one of a job is read in another way than others."""
        self._most = most
        self._alone_differs = alone_differs
        self._cache: ByteCache[tuple[bytes, bool], T] = ByteCache(caches.references_mb * MB, tensor_bytes)

    @property
    def stats(self) -> CacheStats:
        return self._cache.stats

    def clear(self) -> None:
        self._cache.clear()

    def read(self, request: PreparedRequest, read: Callable[[Image.Image, bool], T]) -> list[T]:
        """Each of the job's references by `read`, which is given the image, and whether it is the only one where that
        matters. Raises JobError for one that is no image, and for too many."""
        references = request.references
        if len(references) > self._most:
            raise JobError(f"at most {self._most} input images are possible")
        alone = self._alone_differs and len(references) == 1
        return [
            self._cache.get_or_create((sha256(data).digest(), alone), lambda data=data: read(open_image(data), alone))
            for data in references
        ]
