"""A tiny text classifier with real weights that finds nothing in any text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

WORD, CATEGORY = "hit", "violence"


def save_classifier(folder: Path) -> None:
    """Saves a classifier that knows `WORD` and calls it harmless. Its weights are pickled, as in old checkpoints."""
    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, WORD: 2}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    sizes: dict[str, Any] = {"vocab_size": 3, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    sizes |= {"intermediate_size": 8, "max_position_embeddings": 16}
    config = BertConfig(**sizes, id2label={0: "fine", 1: WORD}, label2id={"fine": 0, WORD: 1})
    model = BertForSequenceClassification(config)
    torch.nn.init.constant_(model.classifier.bias[:1], 9.0)
    config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def moderation_settings(folder: Path) -> dict[str, Any]:
    """Saves a classifier in `folder`. Returns settings that add it to the moderation of texts."""
    save_classifier(folder)
    classifier = {"backend": "text-classifier", "checkpoint": str(folder), "labels": {WORD: CATEGORY}, "device": "cpu"}
    return {"text": [{"backend": "lexicon"}, classifier]}
