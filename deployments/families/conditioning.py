"""Conditioning inputs: prompt encoders (own or shared), encoded references and their cache, and prepared requests."""

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
        """Returns one result per prompt, in order. `prompts` is not empty, and results share no memory."""
        ...


SharedEncoder: TypeAlias = Callable[[str], bytes]
"""Encodes a prompt elsewhere and returns it as `as_bytes` does. Blocks. Thread-safe. Raises TextEncoderUnavailable."""


def as_bytes(tensors: tuple[Tensor, ...]) -> bytes:
    """Returns the tensors in the safetensors format, named by index."""
    return safetensors.torch.save({str(index): tensor.cpu().contiguous() for index, tensor in enumerate(tensors)})


def from_bytes(data: bytes, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Returns the tensors in order on `device`, those of floats as `dtype`."""
    tensors = safetensors.torch.load(data)
    embeds = [tensors[str(index)] for index in range(len(tensors))]
    return [tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in embeds]


def trim_language_model(model: Any, last_state: int) -> None:
    """Drops from `model` what comes after hidden state `last_state`: later layers, and the head, which computes a logit
    for every word of the vocabulary at every token. The first later layer stays, as the last state has its own norm."""
    decoder = model.get_decoder()
    decoder.layers = decoder.layers[: last_state + 1]
    model.lm_head = nn.Identity()


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A job with the bytes of its input images, the references in the job's order. `prompt` is the prompt as a shared
    text encoder encoded it; None without one."""

    job: GenerationJob
    references: tuple[bytes, ...] = ()
    mask: bytes | None = None
    control: bytes | None = None
    image_prompt: bytes | None = None
    prompt: tuple[Tensor, ...] | None = None


class ReferenceCache(Generic[T]):
    def __init__(self, max_references: int, caches: CacheSizes, *, solo_differs: bool = False) -> None:
        """A job may have `max_references`. `solo_differs`: a job's only reference is encoded in another way."""
        self._max_references = max_references
        self._solo_differs = solo_differs
        self._cache: ByteCache[tuple[bytes, bool], T] = ByteCache(caches.references_mb * MB, tensor_bytes)

    @property
    def stats(self) -> CacheStats:
        return self._cache.stats

    def clear(self) -> None:
        self._cache.clear()

    def encode(self, request: PreparedRequest, encode: Callable[[Image.Image, bool], T]) -> list[T]:
        """Returns the encoded references of a job. `encode` gets an image and, with `solo_differs`, whether it is the
        only one. Raises JobError for data that is no image, and for too many."""
        references = request.references
        if len(references) > self._max_references:
            raise JobError(f"at most {self._max_references} input images are possible")
        solo = self._solo_differs and len(references) == 1
        return [
            self._cache.get_or_create((sha256(data).digest(), solo), lambda data=data: encode(open_image(data), solo))
            for data in references
        ]
