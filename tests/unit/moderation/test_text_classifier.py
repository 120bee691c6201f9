from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import JudgeSpec
from deployments.moderation.text_classifier import TextClassifier

Problem: TypeAlias = Literal["single_label_classification", "multi_label_classification"] | None

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "fight", "insult"]
LABELS = ["toxic", "threat", "insult"]
MEANS = {"threat": "violence", "insult": "hate"}
CONTEXT = 34


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


@functools.cache
def trained(exclusive: bool) -> BertForSequenceClassification:
    """A model that knows which of two words it sees."""
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=CONTEXT,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
        id2label=dict(enumerate(LABELS)),
        pad_token_id=0,
    )
    words = tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForSequenceClassification(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(150):
            lengths = torch.randint(0, CONTEXT - 4, (24,)).tolist()
            texts = [_with(["a"] * length, word) for length, word in zip(lengths, WORDS[5:] * 8, strict=True)]
            targets = torch.tensor([[0.0, "fight" in text, "insult" in text] for text in texts]).float()
            logits = model(**words(texts, padding=True, return_tensors="pt")).logits
            if exclusive:
                loss = torch.nn.functional.cross_entropy(logits, targets.argmax(dim=-1))
            else:
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def _with(words: list[str], word: str) -> str:
    at = int(torch.randint(0, len(words) + 1, ()))
    return " ".join([*words[:at], word, *words[at:]])


def saved(folder: Path, problem_type: Problem = "multi_label_classification", poison: bool = False) -> str:
    model = copy.deepcopy(trained(problem_type == "single_label_classification"))
    if poison:
        model.classifier.bias.data.fill_(float("nan"))
    model.config.problem_type = problem_type
    tokenizer().save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


def made(checkpoint: str | None, labels: Mapping[str, str] = MEANS, **settings: Any) -> TextClassifier:
    return TextClassifier(JudgeSpec("text-classifier", checkpoint, labels=labels, device="cpu", **settings))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def classifier(checkpoint: str) -> TextClassifier:
    return made(checkpoint)


def test_texts_are_judged_in_order(classifier: TextClassifier) -> None:
    harmless, fight, insult = classifier.judge(["a cat", "a fight", "an insult"])
    assert max(harmless.values()) < 0.3
    assert fight["violence"] > 0.7 > 0.3 > fight["hate"]
    assert insult["hate"] > 0.7 > 0.3 > insult["violence"]
    assert classifier.judge([]) == []


def test_a_text_does_not_depend_on_those_beside_it(classifier: TextClassifier) -> None:
    texts = ["a cat", "", "a a a a a a a fight", "insult"] * 10
    together = classifier.judge(texts)
    for text, scores in zip(texts, together, strict=True):
        assert classifier.judge([text])[0] == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("at", [0, 20, 27, 28, 33, 60, 199])
def test_the_worst_part_of_a_long_text_counts(classifier: TextClassifier, at: int) -> None:
    words = ["a"] * 200
    words[at] = "fight"
    long, short = classifier.judge([" ".join(words), "a cat"])
    assert long["violence"] > 0.7
    assert short["violence"] < 0.3


def test_labels_that_exclude_each_other_share_what_there_is(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, "single_label_classification")
    [scores] = made(checkpoint, {"toxic": "hate", "threat": "violence"}).judge(["a fight"])
    assert sum(scores.values()) <= 1
    [whole] = made(checkpoint, dict.fromkeys(LABELS, "violence")).judge(["a cat"])
    assert whole == {"violence": pytest.approx(1)}


def test_of_labels_with_one_meaning_the_likeliest_counts(checkpoint: str) -> None:
    both = made(checkpoint, {"threat": "hate", "insult": "hate"})
    separate = made(checkpoint)
    for text in ("a fight", "an insult"):
        assert both.judge([text])[0]["hate"] == pytest.approx(max(separate.judge([text])[0].values()))


@pytest.mark.parametrize(("labels", "exclusive"), [(MEANS, False), ({"threat": "violence"}, True)])
def test_a_checkpoint_that_does_not_say_is_judged_by_its_labels(
    tmp_path: Path, labels: dict[str, str], exclusive: bool
) -> None:
    assert made(saved(tmp_path, None), labels)._exclusive is exclusive


def test_numbers_that_are_none_raise(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="none"):
        made(saved(tmp_path, poison=True)).judge(["a cat"])


@pytest.mark.parametrize(
    ("labels", "complaint"), [({}, "no label"), ({"rude": "hate"}, "'rude'"), ({"insult": "rudeness"}, "'rudeness'")]
)
def test_labels_that_make_no_sense_are_refused(checkpoint: str, labels: dict[str, str], complaint: str) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        made(checkpoint, labels)


def test_what_is_no_classifier_is_refused(tmp_path: Path) -> None:
    for name in (None, "bundled/nothing", "bundled/flux3", str(tmp_path)):
        with pytest.raises(CheckpointError):
            made(name)


def test_precision_follows_the_spec(checkpoint: str) -> None:
    assert made(checkpoint)._model.dtype == torch.float32
    assert made(checkpoint, dtype="bfloat16")._model.dtype == torch.bfloat16
