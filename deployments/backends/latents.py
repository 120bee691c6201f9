"""Latents as bytes: safetensors, and what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

CONTENT_TYPE = "application/octet-stream"
_HEADER_BYTES = 8


class BrokenLatentsError(Exception):
    """The bytes hold no latents, or not those that are needed."""


def packed(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    return save({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, dict(metadata))


def unpacked(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Raises BrokenLatentsError."""
    try:
        tensors = load(data)
        length = int.from_bytes(data[:_HEADER_BYTES], "little")
        metadata = json.loads(data[_HEADER_BYTES : _HEADER_BYTES + length])["__metadata__"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise BrokenLatentsError(str(error)) from error
    return tensors, metadata
