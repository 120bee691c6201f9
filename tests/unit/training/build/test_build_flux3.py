from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_layout import layout, size

from training.build.build_flux3 import FOLDER, build, text_encoder
from training.build.vocabulary import numbers, qwen
from training.build.words import VOCABULARY, learn_tokenizer


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rebuilt") / "flux3"
    build(folder)
    return folder


def test_training_changes_nothing_but_the_numbers(rebuilt: Path) -> None:
    assert layout(FOLDER) == layout(rebuilt)


def test_it_is_small_enough_for_the_repository() -> None:
    assert size(FOLDER) < 8 * 2**20


def test_the_index_names_no_place_outside_its_folder() -> None:
    index = json.loads((FOLDER / "modular_model_index.json").read_text())
    assert index["_class_name"] == "Flux3DistilledModularPipeline"
    components = [entry[-1] for entry in index.values() if isinstance(entry, list)]
    assert len(components) == 4
    assert all(component["pretrained_model_name_or_path"] is None for component in components)


@pytest.mark.parametrize("text", ["a red circle", "Größe ☀ 日本", "  two  spaces\n", "<tag> {json: 1}"])
def test_any_text_survives_the_tokenizer(text: str) -> None:
    words = qwen()
    assert len(words) <= VOCABULARY
    assert words.decode(words(text)["input_ids"]) == text


@pytest.mark.parametrize("words", [learn_tokenizer(), qwen()])
def test_words_of_the_little_world_are_one_token_each(words: Any) -> None:
    assert len(words(" red circle on a blue background")["input_ids"]) == 6


@pytest.mark.parametrize("number", [0, 7, 42, 305, 1000])
def test_numbers_of_boxes_are_one_token_each(number: int) -> None:
    assert len(qwen()(f"[{number}, {number}]")["input_ids"]) == len(["[", number, ",", " ", number, "]"])


def test_numbers_that_are_close_begin_close() -> None:
    known = numbers()
    table = text_encoder().get_input_embeddings().get_parameter("weight")
    at = {number: table[known[number]] for number in (300, 310, 900)}
    assert (at[300] - at[310]).norm() < (at[300] - at[900]).norm()
