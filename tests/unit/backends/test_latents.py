from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from deployments.backends.video_checkpoints import BrokenLatentsError, pack_latents, unpack_latents


def test_latents_and_metadata_come_back_as_they_were() -> None:
    tensors = {"picture": torch.randn(1, 8, 4), "sound": torch.randn(1, 3, 5).transpose(1, 2)}
    metadata = {"model": "a/b \N{SNOWMAN}", "steps": "3"}
    again, said = unpack_latents(pack_latents(tensors, metadata))
    assert said == metadata
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


def test_latents_of_inference_can_be_kept() -> None:
    with torch.inference_mode():
        x = torch.ones(2, 3) * 2
    tensors, _ = unpack_latents(pack_latents({"x": x}, {}))
    assert torch.equal(tensors["x"], x)


WHOLE = pack_latents({"x": torch.ones(4)}, {"model": "m"})


@pytest.mark.parametrize("data", [b"", b"hello", b"\xff" * 64, WHOLE[:-1], WHOLE[:20], save({"x": torch.ones(4)})])
def test_what_is_broken_or_says_nothing_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenLatentsError):
        unpack_latents(data)


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_any_wrong_byte_is_refused_or_read(place: int, value: int) -> None:
    data = bytearray(WHOLE)
    data[place] = value
    try:
        tensors, metadata = unpack_latents(bytes(data))
    except BrokenLatentsError:
        return
    assert all(tensor.numel() for tensor in tensors.values())
    assert all(isinstance(value, str) for value in metadata.values())
