"""Loads the atomic steps: every `*.lua` beside this file, with the prelude in front."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def source(name: str) -> str:
    """The text of the script `name` as Redis gets it."""
    return (_FOLDER / "prelude.lua").read_text() + (_FOLDER / f"{name}.lua").read_text()
