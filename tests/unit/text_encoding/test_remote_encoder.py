from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from ray.exceptions import ActorDiedError

from deployments.engine.backend import TextEncoderUnavailable
from deployments.text_encoding import remote_encoder
from deployments.text_encoding.remote_encoder import RemoteEncoder


class Method:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def remote(self, *given: str) -> Any:
        if self._answer is None:
            await asyncio.Event().wait()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Handle:
    """As much of a deployment's handle as there is to see."""

    def __init__(self, answer: Any) -> None:
        self.encode = self.fingerprint = Method(answer)


async def asked(answer: Any) -> Any:
    remote = RemoteEncoder(cast(Any, Handle(answer)), asyncio.get_running_loop())
    return await asyncio.to_thread(remote, "a red star")


async def test_a_thread_is_answered_while_the_loop_asks() -> None:
    assert await asked(b"read") == b"read"


async def test_a_process_that_is_gone_or_silent_is_no_fault_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TextEncoderUnavailable, match="ActorDiedError"):
        await asked(ActorDiedError())
    monkeypatch.setattr(remote_encoder, "_ANSWER_S", 0.01)
    with pytest.raises(TextEncoderUnavailable, match="no answer"):
        await asked(None)
