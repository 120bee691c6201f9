"""The task store's Lua scripts, every `*.lua` beside this file, and the outcomes that they answer."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from serve_app.storage.scripts import PRELUDE, concat_scripts

_HERE: Final = Path(__file__).parent
_ENDING: Final = ("money", "outbox", "timings", "windows", "fair", "retry_and_end")
_ADMISSION: Final = ("money", "rate_limit", "admission")
_DEPENDENCIES: Final = MappingProxyType(
    {
        "submit": (*_ADMISSION, "windows", "fair"),
        "precheck": _ADMISSION,
        "consume_rate_limit": ("rate_limit",),
        "reserve_upload": ("money",),
        "lease": ("fair",),
        "sweep": ("outbox",),
        "advance": ("timings", "windows"),
        **dict.fromkeys(("complete", "cancel", "end_overdue", "erase", "reap", "release"), _ENDING),
    }
)


def parts(name: str) -> tuple[str, ...]:
    """Returns the names of the files that make up the script, its own last."""
    return (*_DEPENDENCIES.get(name, ()), name)


@cache
def source(name: str) -> str:
    """Returns the text of the script `name` as Redis gets it."""
    return concat_scripts(PRELUDE, *(_HERE / f"{part}.lua" for part in parts(name)))


OUTBOX: Final = (PRELUDE, _HERE / "timings.lua", _HERE / "outbox.lua")
"""Files in front of every script that adds to the webhook outbox or takes from it."""


class SubmitOutcome(StrEnum):
    CREATED = "created"
    REPEATED = "repeated"
    REJECTED = "rejected"


class CheckOutcome(StrEnum):
    """Outcome of a script that may reject a request, and creates no task."""

    PASSED = "passed"
    REPEATED = "repeated"
    REJECTED = "rejected"


class AdvanceOutcome(StrEnum):
    ADVANCED = "advanced"
    STALE = "stale"


class CompleteOutcome(StrEnum):
    PUBLISHED = "published"
    REPEATED = "repeated"
    """This attempt had published before: a client library sent the call twice."""
    REFUSED = "refused"
    """The attempt is stale, or the task ended otherwise."""


class ReleaseCause(StrEnum):
    REQUEUE = "requeue"
    """The task is not to blame."""
    CRASH = "crash"
    """The worker was lost with the task."""
    CRASH_ALONE = "crash_alone"
    """The worker was lost with the task, which it had to itself."""
    INTERRUPTION = "interruption"
    """The model had begun with the task and gave it up, without blame."""


class ReleaseOutcome(StrEnum):
    REQUEUED = "requeued"
    ENDED = "ended"
    STALE = "stale"


class CancelOutcome(StrEnum):
    CANCELLED = "cancelled"
    ENDED = "ended"
    """The task had ended otherwise."""
    UNKNOWN = "unknown"
    """The project has no such task."""


class DeleteOutcome(StrEnum):
    DELETED = "deleted"
    UNFINISHED = "unfinished"
    UNKNOWN = "unknown"
    """The project has no such task."""
