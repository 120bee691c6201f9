"""The tokenizer of the bundled video model, as it is stored there.

Token ids are part of what the model has learnt, so the words are learnt once and then kept, also when the checkpoint is
built anew. `python -m training.build.vocabulary_clips` learns them again; after that, train the model again.
"""

from __future__ import annotations

from transformers import GemmaTokenizer

from training.build.clip_words import learn_clip_words
from training.worlds.clips.captions import sayings
from training.build.folders import CHECKPOINTS
from training.build.words import prose

_WORDS = CHECKPOINTS / "ltx2" / "tokenizer"


def clip_words() -> GemmaTokenizer:
    return GemmaTokenizer.from_pretrained(_WORDS)


def learn() -> GemmaTokenizer:
    return learn_clip_words([*sayings(), *prose()])


def main() -> None:
    learn().save_pretrained(_WORDS)
    print("Now build the checkpoint, and train the model.")


if __name__ == "__main__":
    main()
