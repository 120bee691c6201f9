from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import BUNDLED, RewriterSpec
from deployments.rewriting import deployment as prompt_rewriter
from deployments.rewriting.deployment import PromptRewriter
from deployments.rewriting.rewriter import LONGEST, RATIO_TOKENS, Rewriter, clean_answer, split_table, whole_phrases

CONFIG = AutoConfig.from_pretrained(BUNDLED / "rewriter")
PROMPT = "a red circle on a blue background"
TABLE = '\n[{"id": "cat_1", "bbox": [300, 250, 900, 700], "desc": "a sleeping cat"}] '
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def bundled(**settings: Any) -> Rewriter:
    return Rewriter(RewriterSpec("bundled/rewriter", device="cpu", **settings))


@pytest.fixture(scope="module")
def rewriter() -> Rewriter:
    return bundled()


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows chats, but nothing to say: its weights are random."""
    folder = tmp_path_factory.mktemp("chat")
    words = AutoTokenizer.from_pretrained(BUNDLED / "rewriter")
    words.chat_template = TEMPLATE
    words.save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(CONFIG).save_pretrained(folder)
    return folder


def test_a_prompt_is_continued(rewriter: Rewriter) -> None:
    rewritten = rewriter.rewrite(PROMPT, seed=1)
    assert rewritten.startswith(f"{PROMPT}, ")
    assert len(rewritten) > len(PROMPT) + 10


def test_a_seed_decides_the_result(rewriter: Rewriter) -> None:
    results = {seed: rewriter.rewrite(PROMPT, seed) for seed in range(6)}
    assert len(set(results.values())) > 1
    assert {seed: rewriter.rewrite(PROMPT, seed) for seed in range(6)} == results


def test_other_random_numbers_have_no_part_in_it_and_are_left_alone(rewriter: Rewriter) -> None:
    expected = rewriter.rewrite(PROMPT, seed=2)
    torch.manual_seed(5)
    following = torch.rand(3)
    torch.manual_seed(5)
    assert rewriter.rewrite(PROMPT, seed=2) == expected
    assert torch.equal(torch.rand(3), following)


def test_without_temperature_all_seeds_agree() -> None:
    cold = bundled(temperature=0.0)
    assert len({cold.rewrite(PROMPT, seed) for seed in range(4)}) == 1


def test_the_table_stays_at_the_end_as_it_is(rewriter: Rewriter) -> None:
    rewritten = rewriter.rewrite(PROMPT + TABLE, seed=1)
    assert rewritten == rewriter.rewrite(PROMPT, seed=1) + TABLE


@pytest.mark.parametrize("prompt", ["", "  \n", TABLE.strip()])
def test_nothing_to_rewrite(rewriter: Rewriter, prompt: str) -> None:
    assert rewriter.rewrite(prompt, seed=1) == prompt


@pytest.mark.parametrize("written", ["", "\nAnother line.", " ,.", "  "])
def test_a_continuation_that_says_nothing_leaves_the_prompt(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    odd = bundled()
    monkeypatch.setattr(odd, "_generate", lambda *_: written)
    assert odd.rewrite(PROMPT, seed=1) == PROMPT


def test_numbers_that_are_none_leave_the_prompt() -> None:
    broken = bundled()
    with torch.no_grad():
        broken._model.get_input_embeddings().weight.fill_(float("nan"))
    assert broken.rewrite(PROMPT, seed=1) == PROMPT


def test_half_a_character_leaves_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = bundled()
    first_byte = odd._tokenizer("日")["input_ids"][0]
    tokens = iter([first_byte, odd._tokenizer.eos_token_id])
    monkeypatch.setattr(odd, "_pick", lambda *_: next(tokens))
    assert odd.rewrite(PROMPT, seed=1) == PROMPT


def test_what_is_cut_off_ends_with_a_whole_phrase() -> None:
    whole, short = bundled(), bundled(max_new_tokens=7)
    full, cut = whole.rewrite(PROMPT, seed=3), short.rewrite(PROMPT, seed=3)
    assert PROMPT != cut != full
    assert full.startswith(f"{cut},")


@pytest.mark.parametrize("length", [LONGEST - 5, LONGEST + 100])
def test_a_prompt_without_room_for_more_stays(rewriter: Rewriter, length: int) -> None:
    prompt = ("a cat and a dog " * LONGEST)[:length]
    assert rewriter.rewrite(prompt, seed=1) == prompt


def test_a_prompt_longer_than_the_model_can_read_is_continued(rewriter: Rewriter) -> None:
    prompt = "a cat and a dog, " * 100 + "a fox in the snow"
    rewritten = rewriter.rewrite(prompt, seed=1)
    assert prompt in rewritten
    assert len(prompt) <= len(rewritten) <= LONGEST


def test_a_chat_gets_the_instruction_and_the_words_alone(chat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Rewriter(RewriterSpec(str(chat_folder), device="cpu", instruction="Say it better."))
    asked: list[str] = []

    def answer(tokens: list[int], *_: object) -> str:
        asked.append(chat._tokenizer.decode(tokens))
        return '<think>\nA circle?\n</think>\n\n"A crimson disc on azure."'

    monkeypatch.setattr(chat, "_generate", answer)
    assert chat.rewrite(PROMPT + TABLE, seed=1) == "A crimson disc on azure." + TABLE
    assert asked == [f"system: Say it better.\nuser: {PROMPT}\nassistant: "]


def test_a_chat_too_long_for_the_model_leaves_the_prompt(chat_folder: Path) -> None:
    chat = Rewriter(RewriterSpec(str(chat_folder), device="cpu", instruction="Say it better. " * 50))
    assert chat.rewrite(PROMPT, seed=1) == PROMPT


def test_a_table_in_the_answer_is_left_out(chat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Rewriter(RewriterSpec(str(chat_folder), device="cpu", instruction="Say it better."))
    monkeypatch.setattr(chat, "_generate", lambda *_: "A crimson disc." + TABLE)
    assert chat.rewrite(PROMPT, seed=1) == "A crimson disc."


def test_the_prompt_of_an_edit_is_not_continued(rewriter: Rewriter) -> None:
    assert rewriter.rewrite("remove the circle", seed=1) != "remove the circle"
    assert rewriter.rewrite("remove the circle" + TABLE, seed=1, edit=True) == "remove the circle" + TABLE


@pytest.mark.parametrize(("instruction", "rewritten"), [("Clear up.", "Take the circle out."), ("", "remove it")])
def test_a_chat_has_an_instruction_of_its_own_for_edits(
    chat_folder: Path, monkeypatch: pytest.MonkeyPatch, instruction: str, rewritten: str
) -> None:
    spec = RewriterSpec(str(chat_folder), device="cpu", instruction="Say it better.", edit_instruction=instruction)
    chat = Rewriter(spec)
    asked: list[str] = []

    def answer(tokens: list[int], *_: object) -> str:
        asked.append(chat._tokenizer.decode(tokens))
        return "Take the circle out."

    monkeypatch.setattr(chat, "_generate", answer)
    assert chat.rewrite("remove it", seed=1, edit=True) == rewritten
    assert asked == ([f"system: {instruction}\nuser: remove it\nassistant: "] if instruction else [])


def test_a_chat_is_asked_for_a_ratio(chat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Rewriter(RewriterSpec(str(chat_folder), device="cpu", ratio_instruction="Which ratio?"))
    asked: list[tuple[str, object]] = []

    def answer(tokens: list[int], _seed: int, most: int) -> str:
        asked.append((chat._tokenizer.decode(tokens), most))
        return "<think>\nTall.\n</think>\n2:3"

    monkeypatch.setattr(chat, "_generate", answer)
    assert chat.ratio("a giraffe" + TABLE, seed=1) == "2:3"
    assert asked == [("system: Which ratio?\nuser: a giraffe\nassistant: ", RATIO_TOKENS)]
    assert chat.ratio(" ", seed=1) == ""


def test_a_chat_that_babbles_of_ratios_ends_soon(chat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Rewriter(RewriterSpec(str(chat_folder), device="cpu", ratio_instruction="Which?", max_new_tokens=60))
    picked = list[int]()
    monkeypatch.setattr(chat, "_pick", lambda *_: picked.append(5) or 5)
    chat.ratio("a giraffe", seed=1)
    assert len(picked) == RATIO_TOKENS


def test_of_a_model_that_continues_the_rewritten_prompt_tells_the_ratio(rewriter: Rewriter) -> None:
    assert rewriter.ratio(PROMPT + TABLE, seed=1) == rewriter.rewrite(PROMPT, seed=1)


def test_without_an_instruction_a_chat_model_continues(chat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Rewriter(RewriterSpec(str(chat_folder), device="cpu"))
    monkeypatch.setattr(plain, "_generate", lambda *_: ", soft light")
    assert plain.rewrite(PROMPT, seed=1) == f"{PROMPT}, soft light"


@pytest.mark.parametrize(
    ("prompt", "words", "table"),
    [
        ("a clock showing [3]", "a clock showing [3]", ""),
        ('a [{b}] [{"id": 1}]', "a [{b}]", ' [{"id": 1}]'),
        ('a cat\n[ {"id": 1}, {"id": 2} ]\n', "a cat", '\n[ {"id": 1}, {"id": 2} ]\n'),
        ('[{"id": 1}] and more', '[{"id": 1}] and more', ""),
    ],
)
def test_tables_are_found(prompt: str, words: str, table: str) -> None:
    assert split_table(prompt) == (words, table)


def test_a_hostile_prompt_costs_little() -> None:
    prompt = "[{" * 100_000 + "]"
    assert split_table(prompt) == (prompt, "")


@pytest.mark.parametrize(
    ("answer", "cleaned"),
    [
        ('"A cat."', "A cat."),
        ("“A cat.”", "A cat."),
        ('"OPEN" says the sign, not "CLOSED"', '"OPEN" says the sign, not "CLOSED"'),
        ("<think>Hm.</think>A cat.", "A cat."),
        ("Hm, they want a cat.</think> A cat.", "A cat."),
        ("<think>Hm, they want", ""),
    ],
)
def test_answers_are_cleaned(answer: str, cleaned: str) -> None:
    assert clean_answer(answer) == cleaned


@pytest.mark.parametrize(
    ("text", "whole"),
    [(", soft light, fine gr", ", soft light"), ("A cat. It sle", "A cat."), (", soft", ""), ("soft", ""), ("", "")],
)
def test_cut_texts_lose_their_last_phrase(text: str, whole: str) -> None:
    assert whole_phrases(text) == whole


@pytest.mark.parametrize("name", ["bundled/nothing", "bundled/flux3"])
def test_what_is_no_language_model_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError):
        Rewriter(RewriterSpec(name, device="cpu"))


def test_a_model_too_small_for_the_limit_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no room"):
        bundled(max_new_tokens=CONFIG.max_position_embeddings)


def test_precision_follows_the_device() -> None:
    assert bundled()._model.dtype == torch.float32
    assert bundled(dtype="bfloat16")._model.dtype == torch.bfloat16


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
