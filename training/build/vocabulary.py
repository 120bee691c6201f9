"""The tokenizers of the bundled checkpoints, as they are stored there.

Token ids are part of what the models have learnt, so the words are learnt once and then kept, also when a checkpoint is
built anew. `python -m training.build.vocabulary` learns them again from what is said about the little world today;
after that, every model has to be trained again.
"""

from __future__ import annotations

from transformers import CLIPTokenizer, PreTrainedTokenizerBase, Qwen2Tokenizer, T5Tokenizer

from training.build.clip_t5 import learn_clip_tokenizer, learn_t5_tokenizer
from training.build.folders import CHECKPOINTS
from training.build.words import MAX_COORDINATE, learn_tokenizer

_QWEN = CHECKPOINTS / "flux3" / "tokenizer"
_CLIP = CHECKPOINTS / "flux" / "tokenizer"
_T5 = CHECKPOINTS / "flux" / "tokenizer_2"


def qwen(length: int | None = None) -> PreTrainedTokenizerBase:
    """That of Flux2 and Flux3; `length` is what a model of short prompts says of itself."""
    words = Qwen2Tokenizer.from_pretrained(_QWEN)
    if length is not None:
        words.model_max_length = length
    return words


def clip() -> CLIPTokenizer:
    return CLIPTokenizer.from_pretrained(_CLIP)


def t5() -> T5Tokenizer:
    return T5Tokenizer.from_pretrained(_T5)


def numbers() -> dict[int, int]:
    """Token ids of the whole numbers that boxes are made of."""
    words = qwen()
    return {number: int(words.convert_tokens_to_ids(str(number))) for number in range(MAX_COORDINATE + 1)}  # type: ignore[arg-type]


def main() -> None:
    learn_tokenizer().save_pretrained(_QWEN)
    learn_clip_tokenizer().save_pretrained(_CLIP)
    learn_t5_tokenizer().save_pretrained(_T5)
    print("Now build all checkpoints, and train all models.")


if __name__ == "__main__":
    main()
