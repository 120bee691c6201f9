"""A contact sheet: small pictures with what was asked for below, inputs beside results, and the judge's mark."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from training.evaluation.edges import found
from training.evaluation.exam import Answered, Result
from training.evaluation.pictures import drawn, drawn_mask
from training.worlds.pictures.judge import Pixels

_SIDE: Final = 160
"""Pixels of a picture's longer side."""
_GAP: Final = 10
_COLUMNS: Final = 8
"""Pictures, inputs counted."""
_LINES: Final = 4
_LINE: Final = 12
_TITLE: Final = 22
_COLOURS: Final = 256
_MOST_BYTES: Final = 600_000
_RIGHT, _WRONG, _INK, _PAPER = (20, 140, 50), (205, 35, 35), (30, 30, 30), (250, 250, 250)


def sheet(results: Sequence[Result]) -> bytes:
    """PNG of at most 600 kB. Rows without pictures of their own are left out."""
    strips = [_strip(result) for result in results if result.shown]
    width = _COLUMNS * (_SIDE + _GAP) + _GAP
    whole = Image.new("RGB", (width, sum(strip.height for strip in strips) + _GAP), _PAPER)
    top = 0
    for strip in strips:
        whole.paste(strip, (0, top))
        top += strip.height
    # Fewer colours make bands of gradients; half the size is for pictures that are nothing but noise.
    small = whole.resize((whole.width // 2, whole.height // 2), Image.Resampling.BOX)
    ways = (
        whole,
        whole.quantize(_COLOURS, dither=Image.Dither.NONE),
        small.quantize(_COLOURS, dither=Image.Dither.NONE),
    )
    encoded = map(_encoded, ways)
    return next((data for data in encoded if len(data) <= _MOST_BYTES), _encoded(ways[-1]))


def _strip(result: Result) -> Image.Image:
    """A row's pictures under its name, in as many lines as they take."""
    cells = [_cell(answered) for answered in result.shown]
    lines: list[list[Image.Image]] = [[]]
    for cell in cells:
        if sum(other.width for other in lines[-1]) + cell.width > _COLUMNS * (_SIDE + _GAP):
            lines.append([])
        lines[-1].append(cell)
    heights = [max(cell.height for cell in line) for line in lines]
    strip = Image.new("RGB", (_COLUMNS * (_SIDE + _GAP) + _GAP, sum(heights) + _TITLE), _PAPER)
    title = f"{result.row}: {result.right:.0%} of {len(result.grades)} right"
    ImageDraw.Draw(strip).text((_GAP, 5), title, fill=_INK, font=ImageFont.load_default(14))
    top = _TITLE
    for line, height in zip(lines, heights, strict=True):
        left = _GAP
        for cell in line:
            strip.paste(cell, (left, top))
            left += cell.width
        top += height
    return strip


def _cell(answered: Answered) -> Image.Image:
    """Inputs and result side by side, framed in the judge's colour, and the prompt."""
    question = answered.question
    pictures = [_small(pixels) for pixels in _inputs(answered)]
    pictures.append(
        _small(answered.picture) if answered.picture is not None else Image.new("RGB", (_SIDE, _SIDE), _PAPER)
    )
    width = sum(picture.width + _GAP for picture in pictures)
    height = max(picture.height for picture in pictures)
    width = max(width, _SIDE + _GAP)
    prompt = f"{question.prompt} ({question.width} x {question.height})"
    told = textwrap.wrap(prompt, width // 6, max_lines=_LINES, placeholder=" …")
    cell = Image.new("RGB", (width, height + 8 + len(told) * _LINE + _GAP), _PAPER)
    pen, left = ImageDraw.Draw(cell), 0
    for picture in pictures:
        cell.paste(picture, (left, 2))
        left += picture.width + _GAP
    mark = _RIGHT if answered.grade.right else _WRONG
    start = left - pictures[-1].width - _GAP
    pen.rectangle((start, height + 3, left - _GAP - 1, height + 6), fill=mark)
    font = ImageFont.load_default(10)
    for number, line in enumerate(told):
        pen.text((0, height + 9 + number * _LINE), line, fill=_INK, font=font)
    return cell


def _inputs(answered: Answered) -> list[Pixels]:
    question = answered.question
    size = question.width, question.height
    pictures = [drawn(scene, question.grid, size) for scene in question.references]
    if question.mask is not None:
        masked = drawn_mask(question.mask, size) > 0
        pictures[0][masked] = pictures[0][masked] // 2 + 127
    if question.control is not None:
        size = question.grid[1] * 16, question.grid[0] * 16
        edges = found(drawn(question.control, question.grid, size))
        pictures.append(edges[..., None].repeat(3, axis=2))
    return pictures


def _small(pixels: Pixels) -> Image.Image:
    picture = Image.fromarray(pixels)
    scale = _SIDE / max(picture.size)
    return picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.BOX)


def _encoded(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "png", optimize=True)
    return file.getvalue()
