"""Model fault: why a model can't be loaded, as its replica reports it through Ray Serve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deployments.contract.events import for_clients

_FOR_OPERATORS: Final = "model fault: "
_FOR_CLIENTS: Final = "for clients: "
_MAX_LENGTH: Final = 500


class LoadFailed(Exception):
    """Ends a replica whose model can't be loaded. Serve keeps the text in the deployment's status."""

    def __init__(self, reason: str, hidden: Iterable[str] = ()) -> None:
        """Clients get the reason without paths, addresses and the texts in `hidden`."""
        line = reason.partition("\n")[0][:_MAX_LENGTH]
        super().__init__(f"{_FOR_OPERATORS}{line}\n{_FOR_CLIENTS}{for_clients(line, hidden)}")


@dataclass(frozen=True, slots=True)
class ModelFault:
    reason: str
    """One line for operators."""
    for_clients: str
    """The reason without paths, addresses and names of repositories."""


def find_fault(message: str) -> ModelFault | None:
    """Returns the fault in Serve's message about a deployment that fails to start; None for an empty message."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return None
    reason, client_reason = (
        next((line.partition(mark)[2] for line in reversed(lines) if mark in line), None)
        for mark in (_FOR_OPERATORS, _FOR_CLIENTS)
    )
    if reason is None or client_reason is None:
        return ModelFault(lines[-1][:_MAX_LENGTH], "the model can't be started")
    return ModelFault(reason, f"the model can't be loaded: {client_reason}")
