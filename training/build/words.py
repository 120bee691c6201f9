"""Learns the tokenizer of Flux2 and Flux3: byte-level BPE, trained on what is said about the little world.

Byte level means that any text encodes; the words of the little world come out as one token each, and so do the numbers
of boxes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from random import Random
from types import MappingProxyType

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, Qwen2Tokenizer

from training.lessons.pictures import LESSONS

VOCABULARY = 3072
"""Rows of the embedding table; the tokenizer never has more entries."""

_PIECES = 2048
"""Entries that are words or parts of them."""

MAX_COORDINATE = 1000
"""Of boxes."""

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Control tokens; the index of each is its token id."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{{ part.get('text', '') }}{% endfor %}{% endif %}"
    "{% endfor %}"
)
"""Nothing but what was said: small models need no roles."""

_GRIDS = ((8, 8), (8, 14))
_PRACTISED = MappingProxyType({"tell": 6000, "change": 3000, "combine": 800})
_MORE = (
    "photo photograph sketch watercolor oil painting portrait cat dog bird person woman man child car house tree "
    "flower forest sky cloud sea river mountain city street night day sunset light shadow background foreground "
    "bright dark soft warm cold old new young happy beautiful colorful detailed realistic wearing standing sitting "
    "holding looking"
)
"""What other prompts are likely to be about; no picture here shows it, but a text is not to fall apart into letters."""


def prose() -> Iterator[str]:
    """What is said about pictures of the little world; the same in every run."""
    random = Random(0)
    for name, count in _PRACTISED.items():
        for index in range(count):
            yield LESSONS[name](random, _GRIDS[index % 2], False).prompt
    for word in _MORE.split():
        yield f"{word} a {word}, the {word}"


def tables() -> Iterator[str]:
    """Tables of boxes; the same in every run."""
    random = Random(1)
    return (LESSONS["lay out"](random, _GRIDS[index % 2], False).prompt for index in range(200))


def learn_tokenizer() -> PreTrainedTokenizerBase:
    """Takes some seconds. In the class that Qwen text encoders are stored with."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_PIECES,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(itertools.chain(prose(), tables()), trainer)
    model = json.loads(bpe.to_str())["model"]
    learnt = Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],  # type: ignore[arg-type]  # as files have them: pairs
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        unk_token=SPECIAL[0],
        additional_special_tokens=list(SPECIAL[1:]),
    )
    # Whole numbers: their digits would have to be put together again before they say where something is.
    whole = [AddedToken(str(number), single_word=True) for number in range(MAX_COORDINATE + 1)]
    learnt.add_tokens(whole)  # type: ignore[arg-type]  # the tokens of the library beneath
    learnt.chat_template = CHAT_TEMPLATE
    learnt.padding_side = "right"
    return learnt
