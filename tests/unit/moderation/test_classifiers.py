"""The judges that are classifiers of texts and of pictures, with models of random weights."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import JudgeSpec
from deployments.images import Pixels
from deployments.moderation.classifiers import PictureClassifier, TextClassifier

Problem: TypeAlias = Literal["single_label_classification", "multi_label_classification"] | None

LABELS = {0: "normal", 1: "nsfw", 2: "gore", 3: "nude"}
MEANS = {"nsfw": "sexual content", "nude": "sexual content", "gore": "violence"}
SINGLE, MULTI = "single_label_classification", "multi_label_classification"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "fight", "insult"]
ROOM, SHARED = 32, 8
"""Tokens of one part of a text, two of them marks, and those that it shares with the next."""
PREPROCESSING = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
"""As Falconsai/nsfw_image_detection has it, but for the size."""


def saved(folder: Path, problem: Problem, *, broken: bool = False) -> str:
    """Checkpoints of both kinds: `folder/pictures` and `folder/texts`."""
    sizes: Any = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    labels: Any = {"id2label": LABELS, "problem_type": problem, "initializer_range": 0.5}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        pictures = ViTForImageClassification(ViTConfig(**sizes, **labels, image_size=32, patch_size=8))
        texts = BertForSequenceClassification(
            BertConfig(**sizes, **labels, vocab_size=len(WORDS), max_position_embeddings=ROOM + 2, pad_token_id=0)
        )
        for name, model in (("pictures", pictures), ("texts", texts)):
            torch.nn.init.normal_(model.get_parameter("classifier.weight"), float("nan") if broken else 0.0, 0.5)
            model.save_pretrained(folder / name)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        folder / "texts"
    )
    (folder / "pictures" / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING))
    return str(folder)


@pytest.fixture(scope="module")
def multi(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("multi"), MULTI)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("single"), SINGLE)


def of_pictures(folder: str, labels: dict[str, str] = MEANS) -> PictureClassifier:
    return PictureClassifier(JudgeSpec("picture-classifier", f"{folder}/pictures", labels=labels, device="cpu"))


def of_texts(folder: str, labels: dict[str, str] = MEANS, **settings: Any) -> TextClassifier:
    return TextClassifier(JudgeSpec("text-classifier", f"{folder}/texts", labels=labels, device="cpu", **settings))


def noise(*sizes: tuple[int, int]) -> list[Pixels]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 256, (*size, 3), np.uint8) for size in sizes]


@torch.inference_mode()
def logits(folder: str, what: Pixels | list[int]) -> torch.Tensor:
    """Straight from the models, for a picture that needs no scaling, or the numbers of tokens."""
    if isinstance(what, list):
        texts = BertForSequenceClassification.from_pretrained(f"{folder}/texts").eval()
        return texts(input_ids=torch.tensor([what])).logits[0]
    pictures = ViTForImageClassification.from_pretrained(f"{folder}/pictures").eval()
    return pictures(pixel_values=((torch.tensor(what).permute(2, 0, 1).float() / 255 - 0.5) / 0.5)[None]).logits[0]


def test_of_labels_that_hold_together_the_likeliest_counts(multi: str) -> None:
    [picture] = noise((32, 32))
    for scores, seen in (
        (of_pictures(multi).judge([picture])[0], logits(multi, picture)),
        (of_texts(multi).judge(["a cat"])[0], logits(multi, [2, 4, 5, 3])),
    ):
        chances = torch.sigmoid(seen)
        expected = {"sexual content": float(chances[[1, 3]].max()), "violence": float(chances[2])}
        assert scores == pytest.approx(expected, abs=1e-5)


def test_labels_that_exclude_each_other_add_up(single: str) -> None:
    [picture] = noise((32, 32))
    for scores, seen in (
        (of_pictures(single).judge([picture])[0], logits(single, picture)),
        (of_texts(single).judge(["a cat"])[0], logits(single, [2, 4, 5, 3])),
    ):
        shares = torch.softmax(seen, dim=0)
        expected = {"sexual content": float(shares[[1, 3]].sum()), "violence": float(shares[2])}
        assert scores == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("labels", "exclusive"), [(MEANS, False), ({"gore": "violence"}, True)])
def test_texts_are_judged_by_the_labels_that_mean_something_where_a_checkpoint_does_not_say(
    tmp_path: Path, labels: dict[str, str], exclusive: bool
) -> None:
    assert of_texts(saved(tmp_path, None), labels)._exclusive is exclusive


def test_pictures_and_texts_are_judged_as_they_are_alone(multi: str) -> None:
    pictures, texts = noise((32, 32), (50, 70), (3, 90), (200, 1)), ["a cat", "", "a a a a a fight", "insult"] * 5
    judged: list[tuple[Any, Any]] = [(of_pictures(multi), pictures), (of_texts(multi), texts)]
    for one, many in judged:
        together = one.judge(many)
        assert [each["violence"] for each in together] == pytest.approx(
            [one.judge([each])[0]["violence"] for each in many], abs=1e-5
        )
        assert one.judge([]) == []


def test_the_worst_part_of_a_long_text_counts(multi: str) -> None:
    words = Random(0).choices(WORDS[4:], k=200)
    step = ROOM - 2 - SHARED
    parts = [" ".join(words[start : start + ROOM - 2]) for start in range(0, len(words) - SHARED, step)]
    long, *short = of_texts(multi).judge([" ".join(words), *parts])
    assert max(each["violence"] for each in short) > min(each["violence"] for each in short) + 0.1
    assert long["violence"] == pytest.approx(max(each["violence"] for each in short), abs=1e-5)


def test_numbers_that_are_none_judge_nothing(tmp_path: Path) -> None:
    folder = saved(tmp_path, MULTI, broken=True)
    with pytest.raises(RuntimeError, match="not finite"):
        of_pictures(folder).judge(noise((32, 32)))
    with pytest.raises(RuntimeError, match="none"):
        of_texts(folder).judge(["a cat"])


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        ({}, "no label that has a category; it has: normal, nsfw, gore, nude"),
        ({"nsfw": "sexual content", "gpre": "violence"}, "no label gpre; it has"),
        ({"nsfw": "nudity"}, "nudity: no such category; .*sexual content"),
    ],
)
@pytest.mark.parametrize("kind", [of_pictures, of_texts])
def test_labels_are_the_models_and_mean_what_there_is(
    multi: str, kind: Any, labels: dict[str, str], complaint: str
) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        kind(multi, labels)


def test_what_is_no_classifier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="needs a checkpoint"):
        TextClassifier(JudgeSpec("text-classifier", None, labels=MEANS))
    with pytest.raises(CheckpointError, match="can't be loaded for the judge picture-classifier"):
        PictureClassifier(JudgeSpec("picture-classifier", "bundled/flux3", labels=MEANS))
    plain = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32)
    ViTModel(plain, add_pooling_layer=False).save_pretrained(tmp_path / "pictures")
    (tmp_path / "pictures" / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING))
    with pytest.raises(CheckpointError, match=r"no weights for classifier\.bias"):
        of_pictures(str(tmp_path))


def test_precision_follows_the_spec(multi: str) -> None:
    assert of_texts(multi)._model.dtype == torch.float32
    assert of_texts(multi, dtype="bfloat16")._model.dtype == torch.bfloat16
