"""The task store's Lua scripts: every `*.lua` beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from serve_app.storage.scripts import PRELUDE, concat_scripts

_HERE: Final = Path(__file__).parent
_ENDING: Final = ("money", "outbox", "timings", "windows", "fair", "retry_and_end")
_DEPENDENCIES: Final = MappingProxyType(
    {
        "submit": ("money", "admission", "windows", "fair"),
        "look": ("money", "admission"),
        "reserve_upload": ("money",),
        "lease": ("fair",),
        "sweep": ("outbox",),
        "advance": ("timings", "windows"),
        **dict.fromkeys(("complete", "cancel", "end_overdue", "erase", "reap", "release"), _ENDING),
    }
)


@cache
def source(name: str) -> str:
    """The text of the script `name` as Redis gets it."""
    return concat_scripts(PRELUDE, *(_HERE / f"{part}.lua" for part in (*_DEPENDENCIES.get(name, ()), name)))


OUTBOX: Final = (PRELUDE, _HERE / "timings.lua", _HERE / "outbox.lua")
"""What a script begins with that adds to the webhook outbox or takes from it."""
