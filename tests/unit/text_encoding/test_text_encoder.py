from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import torch

from deployments.contract.text_encoder import TextEncoderSpec
from deployments.families.prompts import from_bytes
from deployments.text_encoding import deployment as text_encoding
from deployments.text_encoding.deployment import TextEncoder

SPEC = TextEncoderSpec("bundled/flux3", device="cpu", dtype="float32", threads=1, max_batch=2)


async def started(spec: TextEncoderSpec = SPEC) -> TextEncoder:
    made = TextEncoder.__new__(TextEncoder)
    await TextEncoder.__init__(made, spec)  # the way Ray Serve calls it
    return made


@pytest.fixture
async def encoder() -> AsyncIterator[TextEncoder]:
    before = torch.get_num_threads()
    yield await started()
    torch.set_num_threads(before)


async def test_prompts_of_any_number_are_read_each_for_itself(encoder: TextEncoder) -> None:
    prompts = ["a red star", "two blue circles", "a red star"]
    read = await asyncio.gather(*map(encoder.encode, prompts))
    tensors = [from_bytes(data, torch.device("cpu"), torch.float32) for data in read]
    assert read[0] != read[1]
    assert torch.allclose(tensors[0][0], tensors[2][0], atol=1e-4)
    await encoder.check_health()


async def test_it_says_whose_weights_it_has(encoder: TextEncoder) -> None:
    other = await started(TextEncoderSpec("bundled/flux2klein", device="cpu", threads=1))
    assert await encoder.fingerprint() == await (await started()).fingerprint()
    assert await encoder.fingerprint() != await other.fingerprint()


async def test_a_hung_batch_and_nothing_but_errors_are_unhealthy(
    encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder._prompts, "busy_since", 0.0)
    with pytest.raises(RuntimeError, match="in work"):
        await encoder.check_health()
    monkeypatch.setattr(encoder._prompts, "busy_since", None)

    def broken(prompts: Sequence[str]) -> list[bytes]:
        raise RuntimeError("the device")

    monkeypatch.setattr(text_encoding, "_load", lambda spec: (broken, ""))
    failing = await started()
    for _ in range(text_encoding._FAULTS):
        await failing.check_health()
        with pytest.raises(RuntimeError, match="the device"):
            await failing.encode("a red star")
    with pytest.raises(RuntimeError, match="in a row"):
        await failing.check_health()
