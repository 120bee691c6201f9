"""Attempts that rewrite the prompt or choose the ratio, with a fake store and model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError
from support.attempts import AttemptScene
from support.dispatchers import Write, fake_rewriter

from serve_app.dispatcher.attempt import NOT_REWRITTEN

EDIT = {"references": ("inputs/t/0.png",)}
TIMEOUT_S = 0.1


def say(text: str) -> Write:
    async def write(prompt: str, seed: int) -> str:
        return text.format(prompt=prompt.strip(), seed=seed)

    return write


async def fail(prompt: str, seed: int) -> str:
    raise ActorUnavailableError("gone", None)


async def leave(prompt: str, seed: int) -> str:
    return prompt


async def hang(prompt: str, seed: int) -> str:
    return await asyncio.Future()


@pytest.mark.parametrize(
    ("rewrite", "rewrite_edit", "job", "prompt"),
    [
        (say("{prompt}, {seed}"), None, {}, "a star"),
        (say("{prompt}, {seed}"), None, {"rewrite": True}, "a star, 1"),
        (fail, None, {"rewrite": True}, "a star"),
        (hang, None, {"rewrite": True}, "a star"),
        (say("x"), None, {"rewrite": True, **EDIT}, "a star"),
        (say("x"), say("{prompt}; all else stays"), {"rewrite": True, **EDIT}, "a star; all else stays"),
        (say("x"), leave, {"rewrite": True, **EDIT}, "a star"),
    ],
)
async def test_prompt_is_rewritten_if_requested_and_enabled(
    rewrite: Write, rewrite_edit: Write | None, job: dict[str, Any], prompt: str
) -> None:
    scene = AttemptScene()
    scene.rewriter = fake_rewriter(rewrite, rewrite_edit, timeout_s=TIMEOUT_S)
    fields: dict[str, Any] = {"prompt": "a star", "references": (), **job}
    await scene.attempt(**fields).run()
    assert scene.model.jobs[0].request.prompt == scene.store.outcome["result"].prompt == prompt
    is_unchanged = rewrite in (fail, hang) or rewrite_edit is leave
    assert scene.store.outcome.get("details") == ({"warnings": [NOT_REWRITTEN]} if is_unchanged else None)


@pytest.mark.parametrize(
    ("prompt", "ratio", "size"),
    [
        ("a giraffe", say("2:3"), (832, 1248)),
        ("a giraffe", say("A phone wallpaper suits it."), (768, 1360)),
        ("a giraffe, square format", say("2:3"), (832, 1248)),
        ("a giraffe, square format", say("I like giraffes."), (1024, 1024)),
        ("a giraffe, square format", fail, (1024, 1024)),
        ("a giraffe, square format", hang, (1024, 1024)),
        ("a giraffe, square format", None, (1024, 1024)),
        ("a giraffe", fail, (1360, 768)),
    ],
)
async def test_ratio_comes_from_rewriter_then_prompt_then_default(
    prompt: str, ratio: Write | None, size: tuple[int, int]
) -> None:
    scene = AttemptScene()
    scene.rewriter = fake_rewriter(ratios=ratio, timeout_s=TIMEOUT_S)
    await scene.attempt(prompt=prompt, references=(), open_ratio=True, area=1024**2).run()
    request = scene.model.jobs[0].request
    assert (request.prompt, request.width, request.height) == (prompt, *size)


async def test_requested_size_is_kept() -> None:
    scene = AttemptScene()
    scene.rewriter = fake_rewriter(ratios=say("2:3"))
    await scene.attempt(references=(), width=80, height=80).run()
    request = scene.model.jobs[0].request
    assert (request.width, request.height) == (80, 80)


async def test_rewriter_sees_no_layout() -> None:
    prompts = list[str]()

    async def note(prompt: str, seed: int) -> str:
        prompts.append(prompt.strip())
        return ""

    scene = AttemptScene()
    scene.rewriter = fake_rewriter(ratios=note)
    prompt = 'a giraffe [{"id": "a_1", "bbox": [0, 0, 9, 9], "desc": "16:9"}]'
    await scene.attempt(prompt=prompt, references=(), open_ratio=True).run()
    assert prompts == ["a giraffe"]
