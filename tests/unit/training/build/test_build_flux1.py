from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from checkpoint_layout import layout, size

from training.build.build_flux1 import KINDS, Kind, build
from training.build.clip_t5 import VOCABULARY, learn_clip_tokenizer, learn_t5_tokenizer
from training.build.folders import CHECKPOINTS
from training.build.vocabulary import clip, t5


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rebuilt")
    build(folder)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_training_changes_nothing_but_the_numbers(rebuilt: Path, name: str) -> None:
    assert layout(CHECKPOINTS / name) == layout(rebuilt / name)


@pytest.mark.parametrize("name", KINDS)
def test_each_is_small_enough_for_the_repository(name: str) -> None:
    assert size(CHECKPOINTS / name) < 7 * 2**20


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_index_names_the_pipeline_and_no_place(name: str, kind: Kind) -> None:
    index = json.loads((CHECKPOINTS / name / "model_index.json").read_text())
    assert index["_class_name"] == kind.pipeline.__name__
    assert "_name_or_path" not in index


def test_building_leaves_random_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build(tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_words_of_the_little_world_are_one_token_each() -> None:
    for tokenizer, marks in ((learn_clip_tokenizer(), 2), (learn_t5_tokenizer(), 1), (clip(), 2), (t5(), 1)):
        assert len(tokenizer) <= VOCABULARY
        assert len(tokenizer("red circle on a blue background")["input_ids"]) == 6 + marks


def test_clip_has_tokens_for_any_text() -> None:
    tokenizer = clip()
    ids = tokenizer("Größe ☀ 日本 <tag>", add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in ids
