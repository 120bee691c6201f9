"""Learns the tokenizers from what is said about the worlds today: `python -m training.build.vocabulary`.

That gives words other ids; after it, every checkpoint has to be built, and every model to be trained again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import CLIPTokenizer, GemmaTokenizer, Qwen2Tokenizer, T5Tokenizer

from training.build import byte_pairs
from training.build.bundle import CHECKPOINTS
from training.build.first_weights import MAX_COORDINATE
from training.lessons.pictures import LESSONS
from training.worlds.clips.captions import sayings

_TABLE: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_SPECIAL: Final[dict[str, list[str]]] = _TABLE["special"]
_PIECES: Final[dict[str, int]] = _TABLE["pieces"]
_LENGTHS: Final[dict[str, int]] = _TABLE["lengths"]

_PRIVATE = 0xE000
"""First character that no text has a meaning for."""
_WORD, _LETTER = -6.0, -9.0
"""T5's log-probabilities: a word costs less than its letters, whatever its length."""
_SPACE = "\u2581"

_GRIDS = ((8, 8), (8, 14))


def _prose() -> Iterator[str]:
    """What is said about pictures of the little world; the same in every run."""
    random = Random(0)
    for name, count in _TABLE["practised"].items():
        for index in range(count):
            yield LESSONS[name](random, _GRIDS[index % 2], False).prompt
    for word in _TABLE["more"]:
        yield f"{word} a {word}, the {word}"


def _tables() -> Iterator[str]:
    """Tables of boxes; the same in every run."""
    random = Random(1)
    return (LESSONS["lay out"](random, _GRIDS[index % 2], False).prompt for index in range(200))


def learn_qwen() -> Qwen2Tokenizer:
    texts = chain(_prose(), _tables())
    end, *others = _SPECIAL["qwen"]
    learnt = Qwen2Tokenizer(
        **byte_pairs.learn(byte_pairs.byte_level(), texts, _PIECES["qwen"], _SPECIAL["qwen"]),
        eos_token=end,
        pad_token=end,
        unk_token=end,
        additional_special_tokens=others,
    )
    # Whole numbers: their digits would have to be put together again before they say where something is.
    whole = [AddedToken(str(number), single_word=True) for number in range(MAX_COORDINATE + 1)]
    learnt.add_tokens(whole)  # type: ignore[arg-type]  # the tokens of the library beneath
    learnt.chat_template = _TABLE["chat_template"]
    learnt.padding_side = "right"
    return learnt


def learn_clip() -> CLIPTokenizer:
    # CLIP tells letters at the end of a word from others. The trainer can too, but numbers them differently each time;
    # so it gets them as letters of their own, which get their names back afterwards.
    ends = {letter: chr(_PRIVATE + number) for number, letter in enumerate(byte_pairs.BYTES)}
    names = {end: letter + "</w>" for letter, end in ends.items()}
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = (" ".join(word[:-1] + ends[word[-1]] for word in caption.split()) for caption in _prose())
    model = byte_pairs.learn(bpe, words, _PIECES["clip"], _SPECIAL["clip"], [*byte_pairs.BYTES, *names])

    def named(piece: str) -> str:
        return piece[:-1] + names.get(piece[-1], piece[-1])

    vocabulary = {named(piece): number for piece, number in model["vocab"].items()}
    merges: Any = [(named(left), named(right)) for left, right in model["merges"]]
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=_LENGTHS["clip"])


def learn_t5() -> T5Tokenizer:
    """Words of the little world, and letters for all others; characters beyond Latin-1 are unknown, as T5 has it.

    The pieces are listed instead of trained: the trainer for this kind of model does not repeat itself.
    """
    words = sorted({word for text in _prose() for word in re.findall(r"[\w']+|,|\.", text)})
    letters = [chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0x100))]
    pieces = dict.fromkeys(_SPECIAL["t5"], 0.0)
    pieces |= dict.fromkeys((_SPACE, *letters), _LETTER)
    pieces |= dict.fromkeys((f"{_SPACE}{word}" for word in words), _WORD)
    return T5Tokenizer(vocab=list(pieces.items()), extra_ids=0, model_max_length=_LENGTHS["flux"])


def learn_gemma() -> GemmaTokenizer:
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.Replace(" ", _SPACE)  # type: ignore[assignment]  # declared without a setter
    # Gemma itself splits nothing; what is learnt word by word never joins two.
    words = pre_tokenizers.Split(Regex(rf"{_SPACE}?\w+|{_SPACE}?[^\w\s]|{_SPACE}"), "isolated")
    bpe.pre_tokenizer = words  # type: ignore[assignment]
    special = (*_SPECIAL["gemma"], *(f"<0x{byte:02X}>" for byte in range(256)))
    letters = [_SPACE, *(chr(code) for code in range(0x21, 0x7F))]
    model = byte_pairs.learn(bpe, chain(sayings(), _prose()), _PIECES["gemma"], special, letters)
    learnt = GemmaTokenizer(**model, model_max_length=_LENGTHS["ltx2"], add_bos_token=True)
    learnt.padding_side = "left"
    return learnt


def main() -> None:
    qwen = learn_qwen()
    qwen.save_pretrained(CHECKPOINTS / "flux3" / "tokenizer")
    qwen.model_max_length = _LENGTHS["flux"]
    qwen.save_pretrained(CHECKPOINTS / "flux2klein" / "tokenizer")
    clip, t5 = learn_clip(), learn_t5()
    for checkpoint in ("flux", "kontext", "fill", "canny"):
        clip.save_pretrained(CHECKPOINTS / checkpoint / "tokenizer")
        t5.save_pretrained(CHECKPOINTS / checkpoint / "tokenizer_2")
    learn_gemma().save_pretrained(CHECKPOINTS / "ltx2" / "tokenizer")
    print("Now build all checkpoints, and train all models.")


if __name__ == "__main__":
    main()
