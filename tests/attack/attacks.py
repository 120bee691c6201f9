"""What an attack is: one hostile request, or a play of several, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from attack import verdict
from attack.stage import Stage
from attack.wire import NoAnswer, Request

ANSWER_S: Final = 30.0
SUBMITTED: Final = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    wrong: Sequence[str] = ()
    statuses: Counter[str] = field(default_factory=Counter)
    request: Request | None = None


class Attack(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def tries(self) -> int: ...
    async def run(self, stage: Stage) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Shot:
    """One request of the attackers'. `build` makes it anew each time, always the same."""

    name: str
    build: Callable[[Stage], Request]
    role: str = "developer"
    expected: Collection[int] = ()
    """What it may be answered with; empty for anything but failure."""
    within_s: float = ANSWER_S
    broken: bool = False
    """It is no proper HTTP, so it may also go unanswered."""
    tries: int = 1

    async def run(self, stage: Stage) -> Outcome:
        request = self.build(stage)
        key = stage.key(self.role)
        try:
            answer = await stage.send(request, key, self.within_s)
        except NoAnswer as silence:
            reached = [] if self.broken else [str(silence)]
            return Outcome(reached + _reached(stage), Counter(["none"]), request)
        wrong = _reached(stage) + verdict.wrong(
            request, answer, stage.secrets, plain_400=self.broken and not stage.proxied
        )
        if self.expected and answer.status not in self.expected and not wrong:
            wrong = [f"HTTP {answer.status}: {answer.text[:200]}"]
        if answer.status == SUBMITTED and (task_id := _task_of(answer.text)):
            await stage.cancel(task_id, key)  # what it would make is not what is tried
        return Outcome(wrong, Counter([str(answer.status)]), request)


@dataclass(frozen=True, slots=True)
class Play:
    """Several requests that only together are an attack. `act` tells what went wrong."""

    name: str
    act: Callable[[Stage], Awaitable[Sequence[str]]]
    tries: int = 1

    async def run(self, stage: Stage) -> Outcome:
        try:
            return Outcome(await self.act(stage))
        except NoAnswer as silence:
            return Outcome([str(silence)])


def _reached(stage: Stage) -> list[str]:
    return [f"reached where it must not: {hit}" for hit in stage.origin.take_hits()]


def _task_of(text: str) -> str | None:
    """The id in the answer to a submission."""
    start = '{"id":"'
    return text[len(start) :].partition('"')[0] if text.startswith(start) and '"polling_url"' in text else None
