"""How a prompt in people's words is put before a checkpoint that learnt few sentences of its own.

Words come first (`contract.words`): synonyms, other languages, letters that are wrong. Then what they say is read, and
said again as the checkpoint knows it: a picture (`picture`), changes of one (`changes`), or what becomes of two
(`joining`). A prompt that can't be read so goes on in known words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deployments.contract.job import GenerationJob
from deployments.contract.words import Words, split
from deployments.wording import changes, joining, picture
from deployments.wording.items import Item, items

_READABLE: Final = 2
"""Pictures that a prompt may speak of."""


def prompt_for(job: GenerationJob, words: Words) -> str:
    """The job's prompt for a checkpoint that knows these words; never empty, which text encoders can't read.

    What a tuned model may have learnt stays as it is. Where a mask, outlines, boxes or a picture say where things are,
    the words don't.
    """
    placed = (job.mask, job.control, job.image_prompt)
    if job.adapter is not None or any(given is not None for given in placed):
        return words.normalised(job.prompt, keep_unknown=job.adapter is not None) or " "
    return read(job.prompt, words, len(job.references)) or " "


def read(prompt: str, words: Words, pictures: int) -> str:
    """What is said of so many given pictures, or of a new one."""
    _, table = split(prompt)
    told = ""
    if not table and pictures <= _READABLE:
        row = items(words.pieces(prompt), words)
        told = (_picture(row, words), changes.read(row), joining.read(row))[pictures]
    return told or words.normalised(prompt)


def _picture(row: Sequence[Item], words: Words) -> str:
    seen = picture.read(row, words.colours)
    return seen.said() if seen else ""
