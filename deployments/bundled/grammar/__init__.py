"""Grammar of the bundled checkpoints: rewrites people's prompts into the few sentences that these have learnt."""

from __future__ import annotations

from typing import Final

from deployments.bundled.grammar import edits, image, items, words

_MAX_WORDS: Final = 300
"""Words of a prompt that is parsed; no image here needs more."""


def read(prompt: str, images: int, *, placed: bool = False, tuned: bool = False) -> str:
    """Returns the prompt for the checkpoint; never empty, as text encoders can't read a text without tokens.

    `images` is the number of input images; 0 for a new image. With `placed`, a mask, outlines or boxes give the
    positions, and words are only translated. A `tuned` model may know other words and sentences. A prompt that can't be
    parsed is returned in known words.
    """
    sentence, table = "", words.split(prompt)[1]
    pieces = words.normalize(prompt, keep_unknown=tuned)
    if images <= 2 and len(pieces) <= _MAX_WORDS and not (placed or tuned or table):
        row = items.parse(pieces)
        if images == 0:
            scene = image.read(row)
            sentence = scene.describe() if scene else ""
        else:
            sentence = (edits.change if images == 1 else edits.join)(row)
    return sentence or f"{' '.join(pieces)} {table}".replace(" ,", ",").strip(" ,") or " "
