"""Loads the atomic steps: every `*.lua` beside this file, with what it shares with others in front."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

_FOLDER = Path(__file__).parent

_ENDING = ("prelude", "money", "ending")
_SHARED: Final = MappingProxyType(
    {
        "submit": ("prelude", "money"),
        **dict.fromkeys(("complete", "cancel", "expire", "reap", "release"), _ENDING),
    }
)


@cache
def source(name: str) -> str:
    """The text of the script `name` as Redis gets it."""
    parts = (*_SHARED.get(name, ("prelude",)), name)
    return "".join((_FOLDER / f"{part}.lua").read_text() for part in parts)
