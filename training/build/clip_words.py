"""Learns the tokenizer of the bundled video model, in the class that Gemma text encoders are stored with.

Byte-pair encoding, trained on what is said about the moving world: its words come out as one token each, and any other
text as shorter pieces, or bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import GemmaTokenizer

VOCABULARY = 1024
"""Rows of the embedding table; the tokenizer never has more entries."""
TEXT_LENGTH = 64
"""Tokens of a prompt, of which the first says that it begins; the rest is cut off."""

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_image>", "<end_of_image>", "<image_soft_token>")
"""Control tokens; the index of each is its token id."""

_SPACE = "\u2581"


def learn_clip_words(sentences: Iterable[str]) -> GemmaTokenizer:
    """Takes some seconds."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.Replace(" ", _SPACE)  # type: ignore[assignment]  # declared without a setter
    # Gemma itself splits nothing; what is learnt word by word never joins two.
    words = pre_tokenizers.Split(Regex(rf"{_SPACE}?\w+|{_SPACE}?[^\w\s]|{_SPACE}"), "isolated")
    bpe.pre_tokenizer = words  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))],
        initial_alphabet=[_SPACE, *(chr(code) for code in range(0x21, 0x7F))],
        show_progress=False,
    )
    bpe.train_from_iterator(sentences, trainer)
    model = json.loads(bpe.to_str())["model"]
    learnt = GemmaTokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],  # type: ignore[arg-type]  # as files have them: pairs
        model_max_length=TEXT_LENGTH,
        add_bos_token=True,
    )
    learnt.padding_side = "left"
    return learnt
