"""Builds the bundled prompt rewriter: `python -m training.build.build_rewriter [FOLDER]`. Takes about 90 seconds.

A causal language model in the format of published ones, with less than half a million weights. Unlike the bundled image
models it is trained, here and now: it follows a plain prompt with a few details that fit, and then it ends.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from training.build.detailed_prompts import Example, examples
from training.build.folders import CHECKPOINTS

FOLDER = CHECKPOINTS / "rewriter"
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


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: any text encodes, and the words of the examples take few tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (example.prompt + example.continuation for example in itertools.islice(examples(SEED), 10_000))
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=END, pad_token=END, unk_token=END, model_max_length=CONTEXT
    )


def model() -> Qwen3ForCausalLM:
    """2 layers, 128 wide, untrained."""
    return Qwen3ForCausalLM(
        Qwen3Config(
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
    )


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
    rows = [prompt + continuation for prompt, continuation in zip(prompts, continuations, strict=True)]
    length = min(CONTEXT, max(map(len, rows)))
    tokens = torch.zeros((len(rows), length), dtype=torch.long)
    targets = torch.full_like(tokens, _IGNORED)
    for index, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        filled = torch.tensor(row[-length:])
        tokens[index, : len(filled)] = filled
        first = len(prompt) - max(0, len(row) - length)
        targets[index, first : len(filled)] = filled[first:]
    return tokens, targets


def build(folder: Path = FOLDER, steps: int = STEPS) -> None:
    """Trains, and writes the checkpoint into `folder`, replacing what is there."""
    bar = Progress(TextColumn("training"), BarColumn(), TextColumn("loss {task.fields[loss]:.2f}"), TimeElapsedColumn())
    transformers_logging.disable_progress_bar()  # one bar is enough
    words = tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        learner = model()
        with bar:
            task = bar.add_task("training", total=steps, loss=float("nan"))
            for loss in train(learner, words, steps):
                bar.update(task, advance=1, loss=loss)
    if folder.exists():
        shutil.rmtree(folder)
    learner.half().save_pretrained(folder)
    words.save_pretrained(folder)
    for file in folder.rglob("*.safetensors"):
        file.chmod(0o644)  # written for their owner alone; a replica may run as another user


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums in the same order everywhere, and nothing taken from others
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    build(target)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {size / 2**20:.1f} MiB")
