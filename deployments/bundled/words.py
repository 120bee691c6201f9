"""The tokenizer of the bundled checkpoints: byte-level BPE, trained on captions of a little world, without downloads.

Byte level means that any text encodes; the words of the little world come out as one token each.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, Qwen2Tokenizer

VOCABULARY = 1024
"""Rows of the embedding table; the tokenizer never has more entries."""

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
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_COLOURS = "red green blue yellow orange purple pink cyan magenta white black gray brown teal navy lime gold silver"
_SHAPES = "circle square triangle star ring cross diamond heart rectangle ellipse stripe grid dot"
_PLACES = "left right top bottom center middle corner above below behind front next"
_SIZES = "tiny small large big huge"
_VERBS = "make turn change move add remove put replace paint draw place keep fill"
_SCENES = (
    "photo picture image painting sketch watercolor cat dog person car house tree sky sea mountain city night sunset"
)
_GLUE = "a an the on of in at to with without and it its background foreground into side color bigger smaller brighter"


def captions() -> Iterator[str]:
    """What is said about pictures of the little world; the same in every run."""
    colours, shapes, places = _COLOURS.split(), _SHAPES.split(), _PLACES.split()
    for colour, shape, other in itertools.product(colours, shapes, colours):
        yield f"a {colour} {shape} on a {other} background"
    for colour, shape, place, size in itertools.product(colours, shapes, places, _SIZES.split()):
        yield f"a {size} {colour} {shape} at the {place}"
    for verb, shape, colour in itertools.product(_VERBS.split(), shapes, colours):
        yield f"{verb} the {shape} {colour}"
    for scene, glue in itertools.product(_SCENES.split(), _GLUE.split()):
        yield f"{glue} {scene} {glue}"


def tokenizer() -> PreTrainedTokenizerBase:
    """The tokenizer of every bundled checkpoint, in the class that Qwen text encoders are stored with."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(captions(), trainer)
    model = json.loads(bpe.to_str())["model"]
    trained = Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],  # type: ignore[arg-type]  # as files have them: pairs
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        unk_token=SPECIAL[0],
        additional_special_tokens=list(SPECIAL[1:]),
    )
    trained.chat_template = CHAT_TEMPLATE
    trained.padding_side = "right"
    return trained
