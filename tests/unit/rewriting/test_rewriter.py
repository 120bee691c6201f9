from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import BUNDLED, RewriterSpec
from deployments.rewriting import deployment as prompt_rewriter
from deployments.rewriting.deployment import PromptRewriter
from deployments.rewriting.rewriter import MAX_LENGTH, RATIO_TOKENS, Rewriter, clean_answer, cut_to_phrase, split_table

CONFIG = AutoConfig.from_pretrained(BUNDLED / "rewriter")
PROMPT = "a red circle on a blue background"
TABLE = '\n[{"id": "cat_1", "bbox": [300, 250, 900, 700], "desc": "a sleeping cat"}] '
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def make_rewriter(**settings: Any) -> Rewriter:
    return Rewriter(RewriterSpec("bundled/rewriter", device="cpu", **settings))


@pytest.fixture(scope="module")
def rewriter() -> Rewriter:
    return make_rewriter()


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat model with random weights."""
    folder = tmp_path_factory.mktemp("chat")
    words = AutoTokenizer.from_pretrained(BUNDLED / "rewriter")
    words.chat_template = TEMPLATE
    words.save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(CONFIG).save_pretrained(folder)
    return folder


def test_seed_alone_determines_the_rewritten_prompt(rewriter: Rewriter) -> None:
    torch.manual_seed(5)
    following = torch.rand(3)
    torch.manual_seed(5)
    results = {seed: rewriter.rewrite(PROMPT, seed) for seed in range(6)}
    assert torch.equal(torch.rand(3), following), "the global generator must not be used"
    assert all(each.startswith(f"{PROMPT}, ") and len(each) > len(PROMPT) + 10 for each in results.values())
    assert len(set(results.values())) > 1
    assert {seed: rewriter.rewrite(PROMPT, seed) for seed in range(6)} == results
    assert rewriter.rewrite(PROMPT + TABLE, seed=1) == results[1] + TABLE, "the table must stay at the end"
    assert rewriter.ratio(PROMPT + TABLE, seed=1) == results[1], "the ratio comes from the rewritten prompt"
    assert rewriter._model.dtype == torch.float32


def test_zero_temperature_ignores_the_seed() -> None:
    cold = make_rewriter(temperature=0.0, dtype="bfloat16")
    assert cold._model.dtype == torch.bfloat16
    assert len({cold.rewrite(PROMPT, seed) for seed in range(4)}) == 1


@pytest.mark.parametrize(
    "prompt",
    [*("", "  \n", TABLE.strip()), *(("a cat and a dog " * MAX_LENGTH)[: MAX_LENGTH + n] for n in (-5, 100))],
    ids=["empty", "blank", "only a table", "no room", "too long"],
)
def test_empty_or_longest_prompt_is_unchanged(rewriter: Rewriter, prompt: str) -> None:
    assert rewriter.rewrite(prompt, seed=1) == prompt


@pytest.mark.parametrize("text", ["", "\nAnother line.", " ,.", "  "])
def test_empty_continuation_leaves_the_prompt(rewriter: Rewriter, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(rewriter, "_generate", lambda *_: text)
    assert rewriter.rewrite(PROMPT, seed=1) == PROMPT


def test_nan_output_leaves_the_prompt() -> None:
    broken = make_rewriter()
    with torch.no_grad():
        broken._model.get_input_embeddings().weight.fill_(float("nan"))
    assert broken.rewrite(PROMPT, seed=1) == PROMPT


def test_incomplete_character_leaves_the_prompt(rewriter: Rewriter, monkeypatch: pytest.MonkeyPatch) -> None:
    first_byte = rewriter._tokenizer("日")["input_ids"][0]
    tokens = iter([first_byte, rewriter._tokenizer.eos_token_id])
    monkeypatch.setattr(rewriter, "_pick", lambda *_: next(tokens))
    assert rewriter.rewrite(PROMPT, seed=1) == PROMPT


def test_cut_continuation_ends_with_a_whole_phrase(rewriter: Rewriter) -> None:
    full, cut = (each.rewrite(PROMPT, seed=3) for each in (rewriter, make_rewriter(max_new_tokens=7)))
    assert PROMPT != cut != full
    assert full.startswith(f"{cut},")


def test_long_prompt_is_continued(rewriter: Rewriter) -> None:
    prompt = "a cat and a dog, " * 100 + "a fox in the snow"
    rewritten = rewriter.rewrite(prompt, seed=1)
    assert prompt in rewritten
    assert len(prompt) <= len(rewritten) <= MAX_LENGTH


Chat: TypeAlias = Callable[..., tuple[Rewriter, list[str]]]


@pytest.fixture
def make_chat(chat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    """Creates chat models with a fixed answer, and the list of their prompts."""

    def make(answer: str, **settings: Any) -> tuple[Rewriter, list[str]]:
        chat, prompts = Rewriter(RewriterSpec(str(chat_folder), device="cpu", **settings)), list[str]()

        def generate(tokens: list[int], _seed: int, max_tokens: int | None = None) -> str:
            prompts.append(chat._tokenizer.decode(tokens))
            assert (max_tokens == RATIO_TOKENS) == ("ratio" in prompts[-1])
            return answer

        monkeypatch.setattr(chat, "_generate", generate)
        return chat, prompts

    return make


def test_chat_gets_instruction_and_prompt_without_table(make_chat: Chat) -> None:
    answer = '<think>\nA circle?\n</think>\n\n"A crimson disc on azure."'
    chat, prompts = make_chat(answer, instruction="Say it better.")
    assert chat.rewrite(PROMPT + TABLE, seed=1) == "A crimson disc on azure." + TABLE
    assert prompts == [f"system: Say it better.\nuser: {PROMPT}\nassistant: "]
    chat, _ = make_chat("A crimson disc." + TABLE, instruction="Say it better.")
    assert chat.rewrite(PROMPT, seed=1) == "A crimson disc.", "a table in the answer must be removed"
    plain, _ = make_chat(", soft light")
    assert plain.rewrite(PROMPT, seed=1) == f"{PROMPT}, soft light"


@pytest.mark.parametrize(("instruction", "rewritten"), [("Clear up.", "Take the circle out."), ("", "remove it")])
def test_chat_uses_the_edit_instruction(make_chat: Chat, instruction: str, rewritten: str) -> None:
    chat, prompts = make_chat("Take the circle out.", instruction="Say it better.", edit_instruction=instruction)
    assert chat.rewrite("remove it", seed=1, edit=True) == rewritten
    assert prompts == ([f"system: {instruction}\nuser: remove it\nassistant: "] if instruction else [])


def test_chat_returns_a_ratio(make_chat: Chat) -> None:
    chat, prompts = make_chat("<think>\nTall.\n</think>\n2:3", ratio_instruction="Which ratio?")
    assert chat.ratio("a giraffe" + TABLE, seed=1) == "2:3"
    assert prompts == ["system: Which ratio?\nuser: a giraffe\nassistant: "]
    assert chat.ratio(" ", seed=1) == ""


def test_too_long_chat_leaves_the_prompt(chat_folder: Path) -> None:
    chat = Rewriter(RewriterSpec(str(chat_folder), device="cpu", instruction="Say it better. " * 50))
    assert chat.rewrite(PROMPT, seed=1) == PROMPT


def test_edit_prompt_is_not_continued(rewriter: Rewriter) -> None:
    assert rewriter.rewrite("remove the circle", seed=1) != "remove the circle"
    assert rewriter.rewrite("remove the circle" + TABLE, seed=1, edit=True) == "remove the circle" + TABLE


def test_ratio_answer_is_limited(chat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Rewriter(RewriterSpec(str(chat_folder), device="cpu", ratio_instruction="Which?", max_new_tokens=60))
    picked = list[int]()
    monkeypatch.setattr(chat, "_pick", lambda *_: picked.append(5) or 5)
    chat.ratio("a giraffe", seed=1)
    assert len(picked) == RATIO_TOKENS


@pytest.mark.parametrize(
    ("prompt", "words", "table"),
    [
        ("a clock showing [3]", "a clock showing [3]", ""),
        ('a [{b}] [{"id": 1}]', "a [{b}]", ' [{"id": 1}]'),
        ('a cat\n[ {"id": 1}, {"id": 2} ]\n', "a cat", '\n[ {"id": 1}, {"id": 2} ]\n'),
        ('[{"id": 1}] and more', '[{"id": 1}] and more', ""),
        ("[{" * 100_000 + "]", "[{" * 100_000 + "]", ""),
    ],
    ids=["text", "text before", "two rows", "text behind", "hostile"],
)
def test_layout_table_is_split_from_the_prompt(prompt: str, words: str, table: str) -> None:
    assert split_table(prompt) == (words, table)


@pytest.mark.parametrize(
    ("answer", "cleaned"),
    [
        *(('"A cat."', "A cat."), ("“A cat.”", "A cat."), ("<think>Hm.</think>A cat.", "A cat.")),
        *(("Hm, they want a cat.</think> A cat.", "A cat."), ("<think>Hm, they want", "")),
        ('"OPEN" says the sign, not "CLOSED"', '"OPEN" says the sign, not "CLOSED"'),
    ],
)
def test_answers_are_cleaned(answer: str, cleaned: str) -> None:
    assert clean_answer(answer) == cleaned


@pytest.mark.parametrize(
    ("text", "whole"),
    [(", soft light, fine gr", ", soft light"), ("A cat. It sle", "A cat."), (", soft", ""), ("soft", ""), ("", "")],
)
def test_cut_texts_lose_their_last_phrase(text: str, whole: str) -> None:
    assert cut_to_phrase(text) == whole


def test_other_or_too_small_model_is_rejected() -> None:
    for name in ("bundled/nothing", "bundled/flux3"):
        with pytest.raises(CheckpointError):
            Rewriter(RewriterSpec(name, device="cpu"))
    with pytest.raises(CheckpointError, match="no room"):
        make_rewriter(max_new_tokens=CONFIG.max_position_embeddings)


SPEC = RewriterSpec("bundled/rewriter", device="cpu", threads=1)


@pytest.fixture
async def deployment() -> AsyncIterator[PromptRewriter]:
    before = torch.get_num_threads()
    replica = PromptRewriter.__new__(PromptRewriter)
    await PromptRewriter.__init__(replica, SPEC)  # the way Ray Serve calls it
    yield replica
    replica._thread.shutdown()
    torch.set_num_threads(before)


async def test_deployment_rewrites_prompts_edits_and_ratios(deployment: PromptRewriter) -> None:
    first, second = await asyncio.gather(deployment.rewrite("a cat", 1), deployment.rewrite("a cat", 1))
    assert first == second == await deployment.ratio("a cat", 1)
    assert await deployment.rewrite("remove the cat", 1, edit=True) == "remove the cat"
    await deployment.check_health()


async def test_prompts_are_rewritten_one_at_a_time_in_a_thread(
    deployment: PromptRewriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, threads = threading.Event(), set[int]()

    def rewrite(prompt: str, seed: int, *, edit: bool) -> str:
        going.wait(60)
        threads.add(threading.get_ident())
        return f"{prompt} {seed}"

    monkeypatch.setattr(deployment._rewriter, "rewrite", rewrite)
    calls = [asyncio.create_task(deployment.rewrite("a cat", seed)) for seed in range(3)]
    await asyncio.sleep(0.02)
    await deployment.check_health()
    calls[2].cancel()
    going.set()
    assert await asyncio.gather(*calls[:2]) == ["a cat 0", "a cat 1"]
    assert len(threads - {threading.get_ident()}) == len(threads) == 1


async def test_hung_or_always_failing_rewriter_is_unhealthy(
    deployment: PromptRewriter, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    deployment._calls.busy_since = time.monotonic() - 1
    await deployment.check_health()
    monkeypatch.setattr(prompt_rewriter, "_MAX_PROMPT_S", 0.5)
    with pytest.raises(RuntimeError, match="running"):
        await deployment.check_health()
