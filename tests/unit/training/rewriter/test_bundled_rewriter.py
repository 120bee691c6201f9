from __future__ import annotations

import itertools
import json
from statistics import mean

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from deployments.contract.rewriter import RewriterSpec
from deployments.rewriting.rewriter import Rewriter
from training.build.bundle import CHECKPOINTS
from training.rewriter.model import VOCABULARY, model, tokenizer, train
from training.rewriter.prompts import Example, details, examples

FOLDER = CHECKPOINTS / "rewriter"
DETAILS = frozenset(detail.lower() for detail in details())
HELD_OUT = list(itertools.islice(examples(99, held_out=True), 20))


def phrases(continuation: str) -> list[str]:
    return [phrase.lower() for phrase in continuation.lstrip(", ").rstrip(".").split(", ")]


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    return tokenizer()


@pytest.fixture(scope="module")
def rewriter() -> Rewriter:
    return Rewriter(RewriterSpec(str(FOLDER), device="cpu"))


def test_it_is_small_enough_for_the_repository() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 3 * 2**20


def test_it_is_a_causal_language_model_in_half_precision() -> None:
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert {tensor.dtype for tensor in load_file(FOLDER / "model.safetensors").values()} == {torch.float16}


def test_the_committed_tokenizer_is_the_one_the_script_makes(words: PreTrainedTokenizerFast) -> None:
    made = json.loads(words.backend_tokenizer.to_str())["model"]
    assert made == json.loads((FOLDER / "tokenizer.json").read_text())["model"]


@pytest.mark.parametrize("text", ["a red circle", "Größe ☀ 日本", "  two  spaces\n", "<tag> {json: 1}"])
def test_any_text_survives_the_tokenizer(words: PreTrainedTokenizerFast, text: str) -> None:
    assert len(words) <= VOCABULARY
    assert words.decode(words(text)["input_ids"]) == text


@pytest.mark.parametrize("example", HELD_OUT, ids=lambda example: example.prompt)
def test_prompts_it_never_saw_get_details_and_an_end(rewriter: Rewriter, example: Example) -> None:
    rewritten = rewriter.rewrite(example.prompt, seed=1)
    assert rewritten.startswith(example.prompt)
    added = phrases(rewritten.removeprefix(example.prompt))
    assert 1 <= len(added) <= 4
    assert DETAILS.issuperset(added)
    # Sentences are followed by sentences, which shows that the end was written and not cut.
    assert rewritten.endswith(".") == example.prompt.endswith(".")


def test_it_does_not_settle_what_the_prompt_settles(rewriter: Rewriter) -> None:
    rewritten = [rewriter.rewrite("a red circle on a blue background", seed) for seed in range(20)]
    assert all(text.count("background") == 1 for text in rewritten)


def test_a_few_steps_of_training_lower_the_loss(words: PreTrainedTokenizerFast) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        losses = list(train(model(), words, steps=8))
    assert mean(losses[-2:]) < mean(losses[:2]) - 0.5


def test_examples_add_two_to_four_details_and_repeat_themselves() -> None:
    drawn = list(itertools.islice(examples(5), 300))
    assert drawn == list(itertools.islice(examples(5), 300))
    for example in drawn:
        added = phrases(example.continuation)
        assert 2 <= len(added) <= 4
        assert DETAILS.issuperset(added)


def test_held_out_prompts_are_never_trained_on() -> None:
    seen = {example.prompt for example in itertools.islice(examples(5), 3000)}
    assert seen.isdisjoint(example.prompt for example in itertools.islice(examples(5, held_out=True), 300))
