"""Pictures that the bundled checkpoints have drawn, with their prompts: from the sheet in docs/prompts.md."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

_COLUMNS: Final = 4
_ACROSS, _DOWN, _GAP = 200, 150, 8
_ENLARGED: Final = 4


@dataclass(frozen=True)
class Drawn:
    prompt: str
    small: bytes
    large: bytes
    """Both JPEG."""


def drawn(repository: Path) -> list[Drawn]:
    """In the order of the list."""
    prompts = re.findall(r"^\d+\. `(.+)`$", (repository / "docs/prompts.md").read_text(), re.MULTILINE)
    with Image.open(repository / "docs/pictures/prompts.jpeg") as sheet:
        return [Drawn(prompt, *_sizes(sheet, number)) for number, prompt in enumerate(prompts)]


def _sizes(sheet: Image.Image, number: int) -> tuple[bytes, bytes]:
    left, top = number % _COLUMNS * (_ACROSS + _GAP), number // _COLUMNS * (_DOWN + _GAP)
    cell = sheet.crop((left, top, left + _ACROSS, top + _DOWN))
    large = cell.resize((_ACROSS * _ENLARGED, _DOWN * _ENLARGED), Image.Resampling.LANCZOS)
    return _jpeg(cell), _jpeg(large)


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
