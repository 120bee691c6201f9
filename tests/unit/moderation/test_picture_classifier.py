from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTModel

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import JudgeSpec
from deployments.moderation.picture_classifier import PictureClassifier
from deployments.pictures.pixels import Pixels

LABELS = {0: "normal", 1: "nsfw", 2: "gore", 3: "nude"}
PREPROCESSING = {
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "ViTImageProcessor",
    "image_std": [0.5, 0.5, 0.5],
    "resample": 2,
    "rescale_factor": 1 / 255,
    "size": {"height": 32, "width": 32},
}
"""As Falconsai/nsfw_image_detection has it, but for the size."""


def configured(**settings: Any) -> ViTConfig:
    return ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        id2label=LABELS,
        label2id={name: index for index, name in LABELS.items()},
        **settings,
    )


def saved(folder: Path, model: ViTForImageClassification | ViTModel) -> str:
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING))
    return str(folder)


def classifier(**settings: Any) -> ViTForImageClassification:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ViTForImageClassification(configured(**settings))
        torch.nn.init.normal_(model.get_parameter("classifier.weight"), std=0.5)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("classifier"), classifier())


def judge(checkpoint: str | None, labels: dict[str, str]) -> PictureClassifier:
    return PictureClassifier(JudgeSpec("picture-classifier", checkpoint, labels=labels, device="cpu"))


def noise(*sizes: tuple[int, int]) -> list[Pixels]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 256, (*size, 3), np.uint8) for size in sizes]


def logits_of(checkpoint: str, picture: Pixels) -> torch.Tensor:
    """Straight from the model, for a picture that needs no scaling."""
    assert picture.shape == (32, 32, 3)
    model = ViTForImageClassification.from_pretrained(checkpoint).eval()
    values = (torch.tensor(picture).permute(2, 0, 1).float() / 255 - 0.5) / 0.5
    with torch.inference_mode():
        return model(pixel_values=values[None]).logits[0]


def test_just_one_label_holds_unless_the_checkpoint_says_otherwise(folder: str) -> None:
    [picture] = noise((32, 32))
    [scores] = judge(folder, {"nsfw": "sexual content", "gore": "violence"}).judge([picture])
    shares = torch.softmax(logits_of(folder, picture), dim=0)
    assert scores == pytest.approx({"sexual content": float(shares[1]), "violence": float(shares[2])}, abs=1e-5)


def test_a_checkpoint_may_have_labels_that_hold_together(tmp_path: Path) -> None:
    folder = saved(tmp_path, classifier(problem_type="multi_label_classification"))
    [picture] = noise((32, 32))
    [scores] = judge(folder, {"nsfw": "sexual content"}).judge([picture])
    assert scores["sexual content"] == pytest.approx(float(torch.sigmoid(logits_of(folder, picture)[1])), abs=1e-5)


def test_labels_of_which_one_holds_add_up(folder: str) -> None:
    [picture] = noise((32, 32))
    shares = torch.softmax(logits_of(folder, picture), dim=0)
    [scores] = judge(folder, {"nsfw": "sexual content", "nude": "sexual content"}).judge([picture])
    assert scores == pytest.approx({"sexual content": float(shares[[1, 3]].sum())}, abs=1e-5)


def test_pictures_of_any_sizes_are_judged_as_they_are_alone(folder: str) -> None:
    pictures = noise((32, 32), (50, 70), (3, 90), (200, 1))
    one = judge(folder, {"nsfw": "sexual content"})
    together = one.judge(pictures)
    assert [scores["sexual content"] for scores in together] == pytest.approx(
        [one.judge([picture])[0]["sexual content"] for picture in pictures], abs=1e-5
    )
    assert one.judge([]) == []


def test_numbers_that_are_none_judge_nothing(folder: str) -> None:
    broken = judge(folder, {"nsfw": "sexual content"})
    with torch.no_grad():
        broken._model.classifier.bias.fill_(float("nan"))
    with pytest.raises(RuntimeError, match="not finite"):
        broken.judge(noise((32, 32)))


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [
        ({}, "none"),
        ({"porn": "sexual content"}, "porn"),
        ({"nsfw": "sexual content", "gpre": "violence"}, "gpre"),
    ],
)
def test_labels_must_be_the_models(folder: str, labels: dict[str, str], unknown: str) -> None:
    with pytest.raises(CheckpointError, match=f"labels: {unknown}; .*: normal, nsfw, gore, nude"):
        judge(folder, labels)


def test_categories_must_be_known(folder: str) -> None:
    with pytest.raises(CheckpointError, match=r"nudity: no such category; .*sexual content"):
        judge(folder, {"nsfw": "nudity"})


def test_a_model_without_its_classifying_weights_is_refused(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, ViTModel(configured(), add_pooling_layer=False))
    with pytest.raises(CheckpointError, match=r"no weights for classifier\.bias"):
        judge(checkpoint, {"nsfw": "sexual content"})


def test_no_checkpoint() -> None:
    with pytest.raises(CheckpointError, match="needs a checkpoint"):
        judge(None, {"nsfw": "sexual content"})


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="can't be loaded for the judge picture-classifier"):
        judge(str(tmp_path), {"nsfw": "sexual content"})
