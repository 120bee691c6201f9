"""The commands that the documents show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_FENCE: Final = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def scripts(document: Path, kind: str = "sh") -> str:
    """All blocks of a kind, in order, as one script: later ones use what earlier ones define.

    The kind is what stands after the fence: `sh` runs as it is beside `make run`; `sh real-checkpoints` and the like
    name what else is needed.
    """
    return "\n".join(blocks(document, kind))


def blocks(document: Path, kind: str) -> list[str]:
    """Those of a kind, in order."""
    return [match["text"] for match in _FENCE.finditer(document.read_text()) if match["kind"] == kind]


def kinds(document: Path) -> set[str]:
    return {match["kind"] for match in _FENCE.finditer(document.read_text())}
