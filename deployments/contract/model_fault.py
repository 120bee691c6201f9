"""Model fault: why a model can't be loaded, as its replica says it and Ray Serve passes it on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_MARK: Final = "model fault: "
_PATH: Final = re.compile(r"(?<![\w.])/[^\s:;,'\"()]+")
_MOST: Final = 500


class LoadFailed(Exception):
    """Ends a replica whose model can't be loaded. Serve keeps its text for the deployment's status."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{_MARK}{reason.partition(chr(10))[0][:_MOST]}")


@dataclass(frozen=True, slots=True)
class ModelFault:
    reason: str
    """One line for operators."""
    for_clients: str
    """The same without paths."""


def find_fault(message: str) -> ModelFault | None:
    """Returns the fault in what Serve says of a deployment that fails to start; None where it says nothing."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return None
    named = [line.partition(_MARK)[2] for line in lines if _MARK in line]
    if not named:
        return ModelFault(lines[-1][:_MOST], "the model can't be started")
    return ModelFault(named[-1], f"the model can't be loaded: {_PATH.sub('…', named[-1])}")
