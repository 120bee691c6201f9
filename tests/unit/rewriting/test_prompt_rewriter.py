from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest
import torch

from deployments.contract.model import RewriterSpec
from deployments.rewriting import deployment as prompt_rewriter
from deployments.rewriting.deployment import PromptRewriter

SPEC = RewriterSpec("bundled/rewriter", device="cpu", threads=1)


@pytest.fixture
async def deployment() -> AsyncIterator[PromptRewriter]:
    before = torch.get_num_threads()
    made = PromptRewriter.__new__(PromptRewriter)
    await PromptRewriter.__init__(made, SPEC)  # the way Ray Serve calls it
    yield made
    made._thread.shutdown()
    torch.set_num_threads(before)


async def test_it_rewrites_and_is_healthy(deployment: PromptRewriter) -> None:
    first, second = await asyncio.gather(deployment.rewrite("a cat", 1), deployment.rewrite("a cat", 1))
    assert first == second
    assert first.startswith("a cat")
    await deployment.check_health()


async def test_it_tells_edits_and_ratios_apart(deployment: PromptRewriter) -> None:
    assert await deployment.rewrite("remove the cat", 1, edit=True) == "remove the cat"
    assert await deployment.ratio("a cat", 1) == await deployment.rewrite("a cat", 1)


async def test_one_prompt_at_a_time_and_the_loop_stays_free(
    deployment: PromptRewriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, threads = threading.Event(), set[int]()

    def rewrite(prompt: str, seed: int, *, edit: bool) -> str:
        going.wait(5)
        threads.add(threading.get_ident())
        return f"{prompt} {seed}"

    monkeypatch.setattr(deployment._rewriter, "rewrite", rewrite)
    calls = [asyncio.create_task(deployment.rewrite("a cat", seed)) for seed in range(3)]
    await asyncio.sleep(0.02)
    await deployment.check_health()
    calls[2].cancel()
    going.set()
    assert await asyncio.gather(*calls[:2]) == ["a cat 0", "a cat 1"]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_hung_prompt_is_unhealthy(deployment: PromptRewriter, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment._busy_since = time.monotonic() - 1
    await deployment.check_health()
    monkeypatch.setattr(prompt_rewriter, "_LIMIT_S", 0.5)
    with pytest.raises(RuntimeError, match="in work"):
        await deployment.check_health()


async def test_nothing_but_errors_is_unhealthy(deployment: PromptRewriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_prompt: str, _seed: int, *, edit: bool) -> str:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(deployment._rewriter, "rewrite", fail)
        for _ in range(20):
            await deployment.check_health()
            with pytest.raises(RuntimeError, match="memory"):
                await deployment.rewrite("a cat", 1)
    with pytest.raises(RuntimeError, match="in a row"):
        await deployment.check_health()
    await deployment.rewrite("a cat", 1)
    await deployment.check_health()
