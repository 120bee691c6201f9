from __future__ import annotations

from typing import Any

import pytest

from training.build.checkpoints import component, configuration
from training.build.first_weights import MAX_COORDINATE, numbers
from training.build.vocabulary import learn_clip, learn_gemma, learn_qwen, learn_t5

QWEN = component("flux3", "tokenizer")
CLIP, T5 = component("flux", "tokenizer"), component("flux", "tokenizer_2")
GEMMA = component("ltx2", "tokenizer")
MOVES = "a red circle moves left on a blue background"
ANY = ["a red circle", "Größe ☀ 日本", "  two  spaces\n", "<tag> {json: 1}"]


@pytest.mark.parametrize("words", [learn_qwen(), QWEN])
def test_words_of_the_little_world_are_one_token_each_for_qwen(words: Any) -> None:
    assert len(words(" red circle on a blue background")["input_ids"]) == 6


@pytest.mark.parametrize(("words", "marks"), [(learn_clip(), 2), (CLIP, 2), (learn_t5(), 1), (T5, 1)])
def test_words_of_the_little_world_are_one_token_each_for_flux1(words: Any, marks: int) -> None:
    assert len(words("red circle on a blue background")["input_ids"]) == 6 + marks


@pytest.mark.parametrize("words", [learn_gemma(), GEMMA])
def test_words_of_the_moving_world_are_one_token_each(words: Any) -> None:
    assert len(words(MOVES)["input_ids"]) == 1 + len(MOVES.split())


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (QWEN, configuration("flux3", "text_encoder")["text_config"]["vocab_size"]),
        (QWEN, configuration("flux2klein", "text_encoder")["vocab_size"]),
        (CLIP, configuration("flux", "text_encoder")["vocab_size"]),
        (T5, configuration("flux", "text_encoder_2")["vocab_size"]),
        (GEMMA, configuration("ltx2", "text_encoder")["text_config"]["vocab_size"]),
    ],
)
def test_each_token_has_a_row_in_the_table(words: Any, rows: int) -> None:
    assert len(words) <= rows


@pytest.mark.parametrize("text", ANY)
def test_any_text_survives_qwens_tokenizer(text: str) -> None:
    assert QWEN.decode(QWEN(text)["input_ids"]) == text


@pytest.mark.parametrize("text", [text for text in ANY if text == text.strip()])
def test_any_text_survives_gemmas_tokenizer(text: str) -> None:
    assert GEMMA.decode(GEMMA(text)["input_ids"], skip_special_tokens=True) == text


def test_clip_has_tokens_for_any_text() -> None:
    ids = CLIP("Größe ☀ 日本 <tag>", add_special_tokens=False)["input_ids"]
    assert CLIP.unk_token_id not in ids


@pytest.mark.parametrize("number", [0, 7, 42, 305, MAX_COORDINATE])
def test_numbers_of_boxes_are_one_token_each(number: int) -> None:
    ids = QWEN(f"[{number}, {number}]")["input_ids"]
    assert len(ids) == len(["[", number, ",", " ", number, "]"])
    assert ids.count(numbers()[number]) == 2


def test_control_tokens_are_those_that_the_encoders_know() -> None:
    eyes = configuration("flux3", "text_encoder")
    names = ("vision_start", "vision_end", "image_pad", "video_pad")
    ids = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    assert QWEN.convert_tokens_to_ids([f"<|{name}|>" for name in names]) == [eyes[name] for name in ids]
    text = configuration("ltx2", "text_encoder")["text_config"]
    marks = [text["pad_token_id"], text["eos_token_id"], text["bos_token_id"]]
    assert [GEMMA.pad_token_id, GEMMA.eos_token_id, GEMMA.bos_token_id] == marks
    gist = configuration("flux", "text_encoder")
    assert [CLIP.bos_token_id, CLIP.eos_token_id] == [gist["bos_token_id"], gist["eos_token_id"]]


def test_prompts_of_clips_are_padded_on_the_left_and_never_empty() -> None:
    length = GEMMA.model_max_length
    told = GEMMA([""], padding="max_length", max_length=length)
    assert told["attention_mask"] == [[0] * (length - 1) + [1]]
