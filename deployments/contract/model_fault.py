"""Model fault: why a model can't be loaded, as its replica says it and Ray Serve passes it on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deployments.contract.events import for_clients

_FOR_OPERATORS: Final = "model fault: "
_FOR_CLIENTS: Final = "for clients: "
_MOST: Final = 500


class LoadFailed(Exception):
    """Ends a replica whose model can't be loaded. Serve keeps its text for the deployment's status."""

    def __init__(self, reason: str, hidden: Iterable[str] = ()) -> None:
        """Clients are told the reason without paths, addresses and what is `hidden`."""
        line = reason.partition("\n")[0][:_MOST]
        super().__init__(f"{_FOR_OPERATORS}{line}\n{_FOR_CLIENTS}{for_clients(line, hidden)}")


@dataclass(frozen=True, slots=True)
class ModelFault:
    reason: str
    """One line for operators."""
    for_clients: str
    """The reason without paths, addresses and names of repositories."""


def find_fault(message: str) -> ModelFault | None:
    """Returns the fault in what Serve says of a deployment that fails to start; None where it says nothing."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return None
    reason, told = (
        next((line.partition(mark)[2] for line in reversed(lines) if mark in line), None)
        for mark in (_FOR_OPERATORS, _FOR_CLIENTS)
    )
    if reason is None or told is None:
        return ModelFault(lines[-1][:_MOST], "the model can't be started")
    return ModelFault(reason, f"the model can't be loaded: {told}")
