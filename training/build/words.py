"""What the checkpoints of pictures know of people's words, from `worlds/vocabulary.yaml`."""

from __future__ import annotations

from itertools import chain
from typing import Final

from deployments.contract.words import Words
from training.worlds.vocabulary import COLOURS, PLACES, PROMPTS, SHAPES, SIZES, UNDERSTOOD

_BESIDE: Final = ("shape", "striped", "checkered", "dotted", "plain", "empty", "gradient")


def _words() -> Words:
    names = chain(COLOURS, SHAPES, SIZES, PLACES)
    known = dict.fromkeys(chain((word for name in names for word in name.split()), PROMPTS["others"]))
    return Words(
        known=tuple(known),
        said_for={phrase: name for name, phrases in UNDERSTOOD.items() for phrase in phrases},
        openings=tuple(PROMPTS["openings"]),
        fillers=(*PROMPTS["fillers"], *PROMPTS["ordinary"]),
        colours=tuple(COLOURS),
        shapes=SHAPES,
        sizes=tuple(SIZES),
        nouns=("background",),
        adjectives=_BESIDE,
        edits=tuple(PROMPTS["edits"]),
    )


WORDS: Final = _words()
