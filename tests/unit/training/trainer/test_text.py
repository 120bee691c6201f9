from __future__ import annotations

import copy

import torch

from training.trainer.qwen import Flux2Student
from training.trainer.student import FULLY_PADDED, padded


def test_generating_always_pads_as_far_as_the_pipeline_does() -> None:
    assert {padded(5, 48, learning=False) for _ in range(50)} == {48}


def test_learning_pads_little_most_of_the_time() -> None:
    torch.manual_seed(0)
    lengths = [padded(13, 48, learning=True) for _ in range(400)]
    assert set(lengths) == {16, 48}
    assert abs(lengths.count(48) / 400 - FULLY_PADDED) < 0.1


def test_texts_that_are_cut_off_are_no_longer_than_that() -> None:
    assert {padded(100, 48, learning=True) for _ in range(20)} == {48}


def test_a_text_encoder_can_be_copied_while_it_learns() -> None:
    student = Flux2Student()
    text = student.read(["a red star"], states=3)
    assert text.requires_grad
    assert text.shape[2] == 3 * student.text_encoder.config.hidden_size
    copy.deepcopy(student.text_encoder)
