"""The deployment of text encoders, and its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import torch
from ray.exceptions import ActorDiedError

from deployments import text_encoding
from deployments.backend import TextEncoderUnavailable
from deployments.contract.model import TextEncoderSpec
from deployments.families.conditioning import from_bytes
from deployments.text_encoding import RemoteEncoder, TextEncoder

SPEC = TextEncoderSpec("bundled/flux3", device="cpu", dtype="float32", threads=1, max_batch=2)


async def start_encoder(spec: TextEncoderSpec = SPEC) -> TextEncoder:
    encoder = TextEncoder.__new__(TextEncoder)
    await TextEncoder.__init__(encoder, spec)  # the way Ray Serve calls it
    return encoder


@pytest.fixture
async def encoder() -> AsyncIterator[TextEncoder]:
    before = torch.get_num_threads()
    yield await start_encoder()
    torch.set_num_threads(before)


async def test_prompts_in_a_batch_do_not_affect_each_other(encoder: TextEncoder) -> None:
    prompts = ["a red star", "two blue circles", "a red star"]
    read = await asyncio.gather(*map(encoder.encode, prompts))
    tensors = [from_bytes(data, torch.device("cpu"), torch.float32) for data in read]
    assert read[0] != read[1]
    assert torch.allclose(tensors[0][0], tensors[2][0], atol=1e-4)
    await encoder.check_health()


async def test_fingerprint_identifies_the_weights(encoder: TextEncoder) -> None:
    other = await start_encoder(TextEncoderSpec("bundled/flux2klein", device="cpu", threads=1))
    assert await encoder.fingerprint() == await (await start_encoder()).fingerprint()
    assert await encoder.fingerprint() != await other.fingerprint()


async def test_hung_batch_is_unhealthy(encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder._prompts, "busy_since", 0.0)
    with pytest.raises(RuntimeError, match="running"):
        await encoder.check_health()


class Method:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def remote(self, *prompts: str) -> Any:
        if self._answer is None:
            await asyncio.Event().wait()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Handle:
    """A fake deployment handle."""

    def __init__(self, answer: Any) -> None:
        self.encode = self.fingerprint = Method(answer)


async def call(answer: Any) -> Any:
    remote = RemoteEncoder(cast(Any, Handle(answer)), asyncio.get_running_loop())
    return await asyncio.to_thread(remote, "a red star")


async def test_remote_encoder_answers_a_thread() -> None:
    assert await call(b"read") == b"read"


async def test_dead_or_silent_encoder_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TextEncoderUnavailable, match="ActorDiedError"):
        await call(ActorDiedError())
    monkeypatch.setattr(text_encoding, "_ENCODE_TIMEOUT_S", 0.01)
    with pytest.raises(TextEncoderUnavailable, match="no answer"):
        await call(None)
