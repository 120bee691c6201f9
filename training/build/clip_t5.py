"""The two small text encoders of the bundled Flux1 checkpoints, and how their tokenizers are learnt."""

from __future__ import annotations

import json
import re

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, T5Config, T5EncoderModel, T5Tokenizer

from training.build.words import prose

GIST_WIDTH = 32
TEXT_WIDTH = 64
TEXT_LENGTH = 48
"""Tokens of a prompt; the rest is cut off."""

VOCABULARY = 1024
"""Rows of the embedding tables; the tokenizers never have more entries."""

_CLIP_SPECIAL = ("<|startoftext|>", "<|endoftext|>")
_CLIP_LENGTH = 77
_PRIVATE = 0xE000
"""First character that no text has a meaning for."""

_T5_SPECIAL = ("<pad>", "</s>", "<unk>")
_T5_WORD, _T5_LETTER = -6.0, -9.0
"""Log-probabilities: a word costs less than its letters, whatever its length."""

_BUCKETS = 32
"""Rows of T5's table of relative positions: half for a word itself and what goes before it, half for what follows."""
_EXACT = 8
"""So many distances have a row each; the others share rows, up to _FARTHEST."""
_FARTHEST = 128
_WORD_BEFORE, _WORD_AFTER = 1, _BUCKETS // 2 + 1
_ATTENTIVE = 5.0
"""Added to one score of some fifty, it gets most of the attention."""
_FADING = 0.5
"""Taken from a score per word of distance, so that of equal words the nearest gets most of it."""
_UNSEEN = -10.0


def learn_clip_tokenizer() -> CLIPTokenizer:
    """Byte-level BPE over lower-cased words: any text encodes, the words of the little world as one token each."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    # CLIP tells letters at the end of a word from others. The trainer can too, but numbers them differently each time;
    # so it gets them as letters of their own, which get their names back afterwards.
    ends = {letter: chr(_PRIVATE + number) for number, letter in enumerate(letters)}
    names = {end: letter + "</w>" for letter, end in ends.items()}
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(_CLIP_SPECIAL),
        initial_alphabet=[*letters, *names],
        show_progress=False,
    )
    words = (" ".join(word[:-1] + ends[word[-1]] for word in caption.split()) for caption in prose())
    bpe.train_from_iterator(words, trainer)
    model = json.loads(bpe.to_str())["model"]

    def named(piece: str) -> str:
        return piece[:-1] + names.get(piece[-1], piece[-1])

    return CLIPTokenizer(
        vocab={named(piece): number for piece, number in model["vocab"].items()},
        merges=[(named(left), named(right)) for left, right in model["merges"]],  # type: ignore[arg-type]  # as files have them: pairs
        model_max_length=_CLIP_LENGTH,
    )


def clip_encoder() -> CLIPTextModel:
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=VOCABULARY,
            hidden_size=GIST_WIDTH,
            intermediate_size=2 * GIST_WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=_CLIP_LENGTH,
            projection_dim=GIST_WIDTH,
            bos_token_id=_CLIP_SPECIAL.index("<|startoftext|>"),
            eos_token_id=_CLIP_SPECIAL.index("<|endoftext|>"),
            pad_token_id=_CLIP_SPECIAL.index("<|endoftext|>"),
        )
    )


def learn_t5_tokenizer() -> T5Tokenizer:
    """Words of the little world, and letters for all others; characters beyond Latin-1 are unknown, as T5 has it.

    The pieces are listed instead of trained: the trainer for this kind of model does not repeat itself.
    """
    words = sorted({word for text in prose() for word in re.findall(r"[\w']+|,|\.", text)})
    letters = [chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0x100))]
    pieces = dict.fromkeys(_T5_SPECIAL, 0.0)
    pieces |= dict.fromkeys(("▁", *letters), _T5_LETTER)
    pieces |= dict.fromkeys((f"▁{word}" for word in words), _T5_WORD)
    return T5Tokenizer(vocab=list(pieces.items()), extra_ids=0, model_max_length=TEXT_LENGTH)


def t5_encoder() -> T5EncoderModel:
    """Begins by adding to every word the one before it and the one after it; what else its layers add is learnt.

    Nothing after it knows the order of words: the transformer gives texts no positions. So what belongs together in a
    sentence must be told here, for which two more heads look at words nearby, one to each side.
    """
    model = T5EncoderModel(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=TEXT_WIDTH,
            d_kv=TEXT_WIDTH // 2,
            d_ff=2 * TEXT_WIDTH,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            relative_attention_num_buckets=_BUCKETS,
            relative_attention_max_distance=_FARTHEST,
            feed_forward_proj="gated-gelu",
        )
    )
    with torch.no_grad():
        bias = model.get_parameter("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
        bias.zero_()
        for head, bucket in enumerate((_WORD_BEFORE, _WORD_AFTER)):
            bias[bucket, head] = _ATTENTIVE
        near, half = -_FADING * _distances(), _BUCKETS // 2
        bias[:half, 2], bias[half:, 2] = near, _UNSEEN
        bias[:half, 3], bias[half:, 3] = _UNSEEN, near
        for name, weight in model.named_parameters():
            if name.endswith("DenseReluDense.wo.weight"):
                weight.zero_()
    return model


def _distances() -> torch.Tensor:
    """Of the rows of one half of the table, in words; of rows that several distances share, the least."""
    rows = torch.arange(_BUCKETS // 2).float()
    shared = _EXACT * (_FARTHEST / _EXACT) ** ((rows - _EXACT) / (len(rows) - _EXACT))
    return torch.where(rows < _EXACT, rows, shared)
