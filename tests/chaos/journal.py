"""What was seen from outside: every answer to a client, every call of a receiver, every fault and how long it hurt."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

DEPLOYED: Final = "deploy changed settings, twice"
"""Faults that clients may only notice as reasons to come again."""


@dataclass(slots=True)
class Seen:
    """One accepted task, as its client saw it."""

    id: str
    endpoint: str
    hook: str = ""
    """The receiver's behaviour, if a webhook was asked for."""
    cancelled: bool = False
    """Its client tried to."""
    accepted: float = field(default_factory=time.time)
    """Epoch seconds."""
    canary: bool = False
    polls: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of polls, in order."""

    @property
    def statuses(self) -> list[str]:
        return [poll["status"] for poll in self.polls]


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    retry_after: bool
    """Whether it said when to come again."""
    text: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A poll that got no proper answer."""

    at: float
    what: str
    during: str


@dataclass(frozen=True, slots=True)
class Suffered:
    """A fault, and after how many seconds a task sent when it began was done with all that belongs to it."""

    fault: str
    began: float
    """Epoch seconds."""
    recovered_s: float | None


@dataclass(slots=True)
class Journal:
    began: float = field(default_factory=time.monotonic)
    accepted: dict[str, Seen] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    """Of submissions, all of which were in order."""
    polls: int = 0
    troubles: list[Trouble] = field(default_factory=list)
    unclear: list[Trouble] = field(default_factory=list)
    """Answers of 5xx that did not say when to come again."""
    calls: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=lambda: defaultdict(list))
    """Per webhook-id: the behaviour of the receiver that was called, and the body."""
    delivered: set[str] = field(default_factory=set)
    """Of which webhook-ids a receiver answered 2xx."""
    forged: list[str] = field(default_factory=list)
    """Calls whose signature was wrong, in words."""
    faults: list[Suffered] = field(default_factory=list)
    backlog: int = 0
    """Webhooks that waited for the dead receiver when it was revived."""
    delayed: list[str] = field(default_factory=list)
    """Webhook-ids of other receivers that still waited then, though there was time."""
    fault: str = "nothing"
    """Which one is on, or was last."""

    def trouble(self, what: str) -> None:
        self.troubles.append(self._during(what))

    def answered(self, status: int, retry_after: bool, text: str) -> None:
        """What is not a success."""
        if status >= 500 and not retry_after:
            self.unclear.append(self._during(f"HTTP {status}: {text[:200]}"))

    def _during(self, what: str) -> Trouble:
        return Trouble(time.monotonic() - self.began, what, self.fault)
