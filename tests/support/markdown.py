"""Code blocks of the documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_FENCE: Final = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def scripts(document: Path, kind: str = "sh") -> str:
    """Joins all blocks of a kind into one script: later blocks use variables of earlier ones.

    The kind is the text after the fence. `sh` runs beside `make run`; `sh real-checkpoints` also names a requirement.
    """
    return "\n".join(blocks(document, kind))


def blocks(document: Path, kind: str) -> list[str]:
    return [match["text"] for match in _FENCE.finditer(document.read_text()) if match["kind"] == kind]


def kinds(document: Path) -> set[str]:
    return {match["kind"] for match in _FENCE.finditer(document.read_text())}
