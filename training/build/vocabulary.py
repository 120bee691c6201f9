"""Learns the tokenizers from what is said about the worlds today: `python -m training.build.vocabulary`.

That gives words other ids; after it, every checkpoint has to be built, and every model to be trained again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import CLIPTokenizer, GemmaTokenizer, Qwen2Tokenizer, T5Tokenizer

from training.build import byte_pairs
from training.build.bundle import CHECKPOINTS
from training.build.first_weights import MAX_COORDINATE
from training.lessons.pictures import LESSONS
from training.worlds.clips.captions import sayings

_QWEN_SPECIAL = (
    "<|endoftext|>",
    *("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
)
"""Control tokens; the index of each is its token id. So for the others."""
_CLIP_SPECIAL = ("<|startoftext|>", "<|endoftext|>")
_T5_SPECIAL = ("<pad>", "</s>", "<unk>")
_GEMMA_SPECIAL = (
    *("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"),
    *("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
)

_QWEN_PIECES = 2048
"""Entries that are words or parts of them, beside the numbers."""
_PIECES = 1024
"""Entries of the others."""
_CLIP_LENGTH = 77
_FLUX_LENGTH, _LTX2_LENGTH = 48, 64
"""Tokens of a prompt, with those that say where it begins and ends; the rest is cut off. Flux3 knows no limit."""
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{{ part.get('text', '') }}{% endfor %}{% endif %}"
    "{% endfor %}"
)
"""Nothing but what was said: small models need no roles."""
_PRIVATE = 0xE000
"""First character that no text has a meaning for."""
_WORD, _LETTER = -6.0, -9.0
"""T5's log-probabilities: a word costs less than its letters, whatever its length."""
_SPACE = "\u2581"

_GRIDS = ((8, 8), (8, 14))
_PRACTISED: Final = (("tell", 6000), ("change", 3000), ("combine", 800))
_MORE = (
    "photo photograph sketch watercolor oil painting portrait cat dog bird person woman man child car house tree "
    "flower forest sky cloud sea river mountain city street night day sunset light shadow background foreground "
    "bright dark soft warm cold old new young happy beautiful colorful detailed realistic wearing standing sitting "
    "holding looking"
)
"""What other prompts are likely to be about; no picture here shows it, but a text is not to fall apart into letters."""


def _prose() -> Iterator[str]:
    """What is said about pictures of the little world; the same in every run."""
    random = Random(0)
    for name, count in _PRACTISED:
        for index in range(count):
            yield LESSONS[name](random, _GRIDS[index % 2], False).prompt
    for word in _MORE.split():
        yield f"{word} a {word}, the {word}"


def _tables() -> Iterator[str]:
    """Tables of boxes; the same in every run."""
    random = Random(1)
    return (LESSONS["lay out"](random, _GRIDS[index % 2], False).prompt for index in range(200))


def learn_qwen() -> Qwen2Tokenizer:
    texts = chain(_prose(), _tables())
    learnt = Qwen2Tokenizer(
        **byte_pairs.learn(byte_pairs.byte_level(), texts, _QWEN_PIECES, _QWEN_SPECIAL),
        eos_token=_QWEN_SPECIAL[0],
        pad_token=_QWEN_SPECIAL[0],
        unk_token=_QWEN_SPECIAL[0],
        additional_special_tokens=list(_QWEN_SPECIAL[1:]),
    )
    # Whole numbers: their digits would have to be put together again before they say where something is.
    whole = [AddedToken(str(number), single_word=True) for number in range(MAX_COORDINATE + 1)]
    learnt.add_tokens(whole)  # type: ignore[arg-type]  # the tokens of the library beneath
    learnt.chat_template = _CHAT_TEMPLATE
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
    model = byte_pairs.learn(bpe, words, _PIECES, _CLIP_SPECIAL, [*byte_pairs.BYTES, *names])

    def named(piece: str) -> str:
        return piece[:-1] + names.get(piece[-1], piece[-1])

    vocabulary = {named(piece): number for piece, number in model["vocab"].items()}
    merges: Any = [(named(left), named(right)) for left, right in model["merges"]]
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=_CLIP_LENGTH)


def learn_t5() -> T5Tokenizer:
    """Words of the little world, and letters for all others; characters beyond Latin-1 are unknown, as T5 has it.

    The pieces are listed instead of trained: the trainer for this kind of model does not repeat itself.
    """
    words = sorted({word for text in _prose() for word in re.findall(r"[\w']+|,|\.", text)})
    letters = [chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0x100))]
    pieces = dict.fromkeys(_T5_SPECIAL, 0.0)
    pieces |= dict.fromkeys((_SPACE, *letters), _LETTER)
    pieces |= dict.fromkeys((f"{_SPACE}{word}" for word in words), _WORD)
    return T5Tokenizer(vocab=list(pieces.items()), extra_ids=0, model_max_length=_FLUX_LENGTH)


def learn_gemma() -> GemmaTokenizer:
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.Replace(" ", _SPACE)  # type: ignore[assignment]  # declared without a setter
    # Gemma itself splits nothing; what is learnt word by word never joins two.
    words = pre_tokenizers.Split(Regex(rf"{_SPACE}?\w+|{_SPACE}?[^\w\s]|{_SPACE}"), "isolated")
    bpe.pre_tokenizer = words  # type: ignore[assignment]
    special = (*_GEMMA_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)))
    letters = [_SPACE, *(chr(code) for code in range(0x21, 0x7F))]
    model = byte_pairs.learn(bpe, chain(sayings(), _prose()), _PIECES, special, letters)
    learnt = GemmaTokenizer(**model, model_max_length=_LTX2_LENGTH, add_bos_token=True)
    learnt.padding_side = "left"
    return learnt


def main() -> None:
    qwen = learn_qwen()
    qwen.save_pretrained(CHECKPOINTS / "flux3" / "tokenizer")
    qwen.model_max_length = _FLUX_LENGTH
    qwen.save_pretrained(CHECKPOINTS / "flux2klein" / "tokenizer")
    clip, t5 = learn_clip(), learn_t5()
    for checkpoint in ("flux", "kontext", "fill", "canny"):
        clip.save_pretrained(CHECKPOINTS / checkpoint / "tokenizer")
        t5.save_pretrained(CHECKPOINTS / checkpoint / "tokenizer_2")
    learn_gemma().save_pretrained(CHECKPOINTS / "ltx2" / "tokenizer")
    print("Now build all checkpoints, and train all models.")


if __name__ == "__main__":
    main()
