from __future__ import annotations

import copy

import torch

from training.build import build_flux2
from training.trainer.text import FULLY_PADDED, OneLayer, padded


def test_generating_always_pads_as_far_as_the_pipeline_does() -> None:
    assert {padded(5, 48, learning=False) for _ in range(50)} == {48}


def test_learning_pads_little_most_of_the_time() -> None:
    torch.manual_seed(0)
    lengths = [padded(13, 48, learning=True) for _ in range(400)]
    assert set(lengths) == {16, 48}
    assert abs(lengths.count(48) / 400 - FULLY_PADDED) < 0.1


def test_texts_that_are_cut_off_are_no_longer_than_that() -> None:
    assert {padded(100, 48, learning=True) for _ in range(20)} == {48}


def test_a_decoder_can_be_copied_while_it_learns() -> None:
    decoder = build_flux2.text_encoder().model
    read = OneLayer(decoder)
    stream, last = read(torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.long))
    assert stream.requires_grad
    assert last.shape == stream.shape
    copy.deepcopy(decoder)
