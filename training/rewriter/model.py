"""The bundled prompt rewriter: a causal language model in the format of published ones, of half a million weights.

Unlike the bundled image models it is trained where it is built, in about 90 seconds: it follows a plain prompt with a
few details that fit, and then it ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from training.build import byte_pairs
from training.build.bundle import write
from training.rewriter.prompts import Example, examples

SEED = 7
VOCABULARY = 1024
END = "<|endoftext|>"
CONTEXT = 192
"""Tokens the model can look back on. It has seen few prompts of more than half of that."""

STEPS = 800
BATCH = 48
PEAK_RATE = 4e-3
WARMUP = 20

_IGNORED = -100
"""Marks targets that the loss leaves out."""


def build(folder: Path) -> Path:
    """Trains it, writes it into `folder`, replacing what is there, and returns that. Seeds torch's random numbers."""
    torch.manual_seed(SEED)
    words, learner = tokenizer(), model()
    for _ in track(train(learner, words, STEPS), "training", total=STEPS):
        pass

    def save(path: str) -> None:
        learner.half().save_pretrained(path)
        words.save_pretrained(path)

    write(folder, save)
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: any text encodes, and the words of the examples take few tokens."""
    bpe = byte_pairs.byte_level()
    texts = (example.prompt + example.continuation for example in itertools.islice(examples(SEED), 10_000))
    byte_pairs.learn(bpe, texts, VOCABULARY, [END])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=END, pad_token=END, unk_token=END, model_max_length=CONTEXT
    )


def model() -> Qwen3ForCausalLM:
    """2 layers, 128 wide, untrained."""
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def train(learner: Qwen3ForCausalLM, words: PreTrainedTokenizerFast, steps: int, seed: int = SEED) -> Iterator[float]:
    """Trains in place and yields the loss of every step."""
    source = examples(seed)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_RATE, total_steps=steps, pct_start=min(0.5, WARMUP / steps), cycle_momentum=False
    )
    learner.train()
    for _ in range(steps):
        tokens, targets = _batch(words, list(itertools.islice(source, BATCH)))
        loss = learner(input_ids=tokens, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield loss.item()


def _batch(words: PreTrainedTokenizerFast, drawn: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Tokens and targets, padded at the end. Only the continuation is a target: prompts are for people to write.

    Both parts are encoded apart, since that is how the model meets them when it writes.
    """
    prompts = words([example.prompt for example in drawn])["input_ids"]
    continuations = words([example.continuation + END for example in drawn])["input_ids"]
    tokens, targets = [], []
    for prompt, continuation in zip(prompts, continuations, strict=True):
        tokens.append(torch.tensor([*prompt, *continuation][-CONTEXT:]))
        targets.append(torch.tensor([*[_IGNORED] * len(prompt), *continuation][-CONTEXT:]))
    return pad_sequence(tokens, batch_first=True), pad_sequence(targets, batch_first=True, padding_value=_IGNORED)
