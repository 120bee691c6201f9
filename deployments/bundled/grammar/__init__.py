"""How people's prompts are put before a checkpoint that learnt few sentences of its own."""

from __future__ import annotations

from typing import Final

from deployments.bundled.grammar import edits, image, items, words

_LONGEST: Final = 300  # words of a prompt that is read; no image here needs more


def read(prompt: str, images: int, *, placed: bool = False, tuned: bool = False) -> str:
    """What the checkpoint gets: never empty, as text encoders can't read a text without any tokens.

    `images` are the given ones that it speaks of; 0: it tells a new one. Where things are `placed` by something else,
    as a mask, outlines or boxes, words are taken to say what they are alone. A `tuned` model may have learnt words and
    sentences of its own. What can't be read goes on in known words.
    """
    sentence, table = "", words.split(prompt)[1]
    pieces = words.known(prompt, keep_unknown=tuned)
    if images <= 2 and len(pieces) <= _LONGEST and not (placed or tuned or table):
        row = items.of(pieces)
        drawing = image.read(row) if images == 0 else None
        sentence = (
            (drawing.said() if drawing else "") if images == 0 else (edits.change if images == 1 else edits.join)(row)
        )
    return sentence or f"{' '.join(pieces)} {table}".replace(" ,", ",").strip(" ,") or " "
