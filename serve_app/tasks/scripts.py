"""Loads the atomic steps: every `*.lua` beside this file, with what it shares with others in front."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

_FOLDER = Path(__file__).parent

_ENDING = ("prelude", "money", "outbox", "ending")
_SHARED: Final = MappingProxyType(
    {
        "submit": ("prelude", "money"),
        "sweep": ("prelude", "outbox"),
        **dict.fromkeys(("complete", "cancel", "expire", "reap", "release"), _ENDING),
    }
)


@cache
def source(name: str) -> str:
    """The text of the script `name` as Redis gets it."""
    return parts(*_SHARED.get(name, ("prelude",)), name)


def parts(*names: str, folder: Path = _FOLDER) -> str:
    """The texts of these files, one after the other."""
    return "".join((folder / f"{name}.lua").read_text() for name in names)
