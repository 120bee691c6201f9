"""A sheet of film strips: some frames of each clip beside each other, with what was asked for and what is right."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from training.clips.exam import Answer

PARTS: Final = ("background", "colour", "motion", "pitch")

_SHOWN: Final = 6
"""Frames of a clip."""
_HEIGHT: Final = 72
_GAP: Final = 4
_TEXT: Final = 16
_RIGHT, _WRONG, _INK, _PAPER = (20, 140, 50), (205, 35, 35), (30, 30, 30), (250, 250, 250)


def sheet(answers: Sequence[Answer]) -> bytes:
    """PNG; one strip below the other."""
    strips = [_strip(answer) for answer in answers]
    whole = Image.new("RGB", (max(strip.width for strip in strips), sum(strip.height for strip in strips)), _PAPER)
    top = 0
    for strip in strips:
        whole.paste(strip, (0, top))
        top += strip.height
    file = io.BytesIO()
    whole.quantize(256, dither=Image.Dither.NONE).save(file, "png", optimize=True)
    return file.getvalue()


def _strip(answer: Answer) -> Image.Image:
    chosen = np.linspace(0, len(answer.frames) - 1, _SHOWN).round().astype(int)
    pictures = [Image.fromarray((answer.frames[index] * 255).round().astype(np.uint8)) for index in chosen]
    width = round(pictures[0].width * _HEIGHT / pictures[0].height)
    strip = Image.new("RGB", (_SHOWN * (width + _GAP) + _GAP, _HEIGHT + _TEXT + 2 * _GAP), _PAPER)
    for number, picture in enumerate(pictures):
        strip.paste(picture.resize((width, _HEIGHT), Image.Resampling.BOX), (_GAP + number * (width + _GAP), _TEXT))
    wrong = [part for part in PARTS if not getattr(answer.grade, part)]
    told = f"{answer.question.row}: {answer.question.prompt}" + (f" (wrong: {', '.join(wrong)})" if wrong else "")
    pen = ImageDraw.Draw(strip)
    pen.text((_GAP, 2), told, fill=_WRONG if wrong else _INK, font=ImageFont.load_default(10))
    bottom = _TEXT + _HEIGHT
    pen.rectangle((_GAP, bottom + 1, strip.width - _GAP, bottom + 3), fill=_WRONG if wrong else _RIGHT)
    return strip
