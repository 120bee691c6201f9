"""Byte-pair encoding, learnt from texts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
"""A character for each byte: what has all of them encodes any text."""


def byte_level() -> Tokenizer:
    """A tokenizer of bytes that has learnt nothing yet."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return bpe


def learn(
    bpe: Tokenizer, texts: Iterable[str], size: int, special: Iterable[str], alphabet: Iterable[str] = BYTES
) -> dict[str, Any]:
    """Teaches it `size` entries, the first of them `special`, and returns its `vocab` and `merges`."""
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=list(alphabet), show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    model = json.loads(bpe.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(pair) for pair in model["merges"]]}
